//! The certificates and kubeconfigs of one cluster, made in memory in milliseconds and written with private modes.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

use crate::plan::{ClusterPlan, NodePlan};

/// A certificate authority that signs on the spot.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A signed certificate with its key, both PEM.
struct Signed {
    certificate: String,
    key: String,
}

impl Authority {
    fn new(name: &str, folder: &Path) -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let pem = params.self_signed(&key)?.pem();
        write(&folder.join(format!("{name}.crt")), &pem)?;
        write(&folder.join(format!("{name}.key")), &key.serialize_pem())?;
        Ok(Self { pem, issuer: Issuer::new(params, key) })
    }

    fn sign(
        &self,
        common_name: &str,
        organization: Option<&str>,
        names: &[&str],
        addresses: &[Ipv4Addr],
    ) -> Result<Signed> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        if let Some(organization) = organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params
            .subject_alt_names
            .extend(addresses.iter().map(|address| SanType::IpAddress(IpAddr::V4(*address))));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Signed { certificate, key: key.serialize_pem() })
    }
}

/// Where a cluster's secrets lie.
#[derive(Clone, Debug)]
pub struct Pki {
    folder: PathBuf,
}

impl Pki {
    /// The folder of a cluster's secrets below its state.
    pub fn of(state: &Path) -> Self {
        Self { folder: state.join("pki") }
    }

    /// Path of one of its files.
    pub fn path(&self, file: &str) -> String {
        self.folder.join(file).display().to_string()
    }

    /// The administrator's kubeconfig.
    pub fn admin_kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.conf")
    }

    /// Makes everything a cluster needs.
    pub fn create(&self, plan: &ClusterPlan) -> Result<()> {
        fs::create_dir_all(&self.folder)
            .with_context(|| format!("cannot create {}", self.folder.display()))?;
        let ca = Authority::new("ca", &self.folder)?;
        let front_proxy = Authority::new("front-proxy-ca", &self.folder)?;
        self.store("front-proxy-client", &front_proxy.sign("front-proxy-client", None, &[], &[])?)?;
        self.store(
            "apiserver-kubelet-client",
            &ca.sign("kube-apiserver-kubelet-client", Some("system:masters"), &[], &[])?,
        )?;
        self.store("apiserver", &serving(&ca, plan)?)?;
        let accounts = KeyPair::generate()?;
        write(&self.folder.join("sa.key"), &accounts.serialize_pem())?;
        write(&self.folder.join("sa.pub"), &accounts.public_key_pem())?;
        for (file, user, group) in [
            ("admin", "kubernetes-admin", Some("system:masters")),
            ("controller-manager", "system:kube-controller-manager", None),
            ("scheduler", "system:kube-scheduler", None),
            ("proxy", "system:kube-proxy", None),
        ] {
            self.kubeconfig(file, plan, &ca.pem, &ca.sign(user, group, &[], &[])?)?;
        }
        plan.nodes.iter().try_for_each(|node| self.kubelet(&ca, plan, node))
    }

    fn kubelet(&self, ca: &Authority, plan: &ClusterPlan, node: &NodePlan) -> Result<()> {
        let user = format!("system:node:{}", node.name);
        let signed = ca.sign(&user, Some("system:nodes"), &[&node.name], &[node.address])?;
        self.store(&format!("kubelet-{}", node.number), &signed)?;
        self.kubeconfig(&format!("kubelet-{}", node.number), plan, &ca.pem, &signed)
    }

    fn store(&self, name: &str, signed: &Signed) -> Result<()> {
        write(&self.folder.join(format!("{name}.crt")), &signed.certificate)?;
        write(&self.folder.join(format!("{name}.key")), &signed.key)
    }

    fn kubeconfig(&self, file: &str, plan: &ClusterPlan, ca: &str, signed: &Signed) -> Result<()> {
        let name = &plan.name;
        let document = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": name,
            "clusters": [{"name": name, "cluster": {"server": plan.server(), "certificate-authority-data": base64(ca)}}],
            "users": [{"name": file, "user": {
                "client-certificate-data": base64(&signed.certificate), "client-key-data": base64(&signed.key)}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": file}}],
        });
        write(&self.folder.join(format!("{file}.conf")), &serde_json::to_string_pretty(&document)?)
    }
}

/// The API server answers by address, by the names that pods use, and through a relay on this machine.
fn serving(ca: &Authority, plan: &ClusterPlan) -> Result<Signed> {
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    let addresses = [plan.control_plane(), plan.api_service(), plan.lan.host(), Ipv4Addr::LOCALHOST];
    ca.sign("kube-apiserver", None, &names, &addresses)
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// Writes a file that only root reads.
fn write(path: &Path, text: &str) -> Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
