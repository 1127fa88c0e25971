//! Which claim over there a volume stands for. It is written into the part of a volume that nobody can change.

use std::fmt;

use k8s_openapi::api::core::v1::PersistentVolume;

use super::PROVISIONER;

/// A claim on another cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The identifier of the cluster.
    pub peer: String,
    /// The namespace over there.
    pub namespace: String,
    /// The UID over there.
    pub uid: String,
}

impl Handle {
    /// The claim that a volume stands for; none for volumes that are not ours.
    pub fn of(volume: &PersistentVolume) -> Option<Self> {
        let csi = volume.spec.as_ref()?.csi.as_ref().filter(|csi| csi.driver == PROVISIONER)?;
        let mut parts = csi.volume_handle.split('/');
        let (peer, namespace, uid) = (parts.next()?, parts.next()?, parts.next()?);
        let is_whole = parts.next().is_none() && [peer, namespace, uid].iter().all(|part| !part.is_empty());
        is_whole.then(|| Self { peer: peer.to_owned(), namespace: namespace.to_owned(), uid: uid.to_owned() })
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}/{}/{}", self.peer, self.namespace, self.uid)
    }
}
