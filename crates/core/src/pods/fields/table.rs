//! The table itself, part by part.

use super::Home::{Dropped, Refused, Translated};
use super::{Field, Home, Provider, Section};

const LEFT_OUT: Provider = Provider::Dropped;
const OVERRULED: Provider = Provider::Overruled;
const FORBIDDEN: Provider = Provider::Refused;

const NODES: &str = "it chose among the nodes of home, and the scheduler at home has heeded it";
const PRIORITY: &str = "priority classes of home mean nothing over there";
const ACCOUNTS: &str = "service accounts of home do not exist over there";
const TIED: &str = "the volume belongs to the nodes or the network of home; use a claim";
const LOCAL_FILES: &str = "profiles of type Localhost must be on the nodes over there";
const WINDOWS: &str = "pods for Windows do not travel";
const HOST: &str = "it is a node's, and no cluster gives its nodes to pods of others";
const BASELINE: &str = "what the Pod Security level baseline does not allow is refused, unless the Tenant has the level \
                        privileged";

/// It arrives as it is.
const fn sent(name: &'static str) -> Field {
    noted(name, "")
}

/// It arrives as it is, and there is something to say about it.
const fn noted(name: &'static str, note: &'static str) -> Field {
    Field { name, home: Home::Travels, provider: Provider::Kept, note }
}

/// Neither side lets it through.
const fn barred(name: &'static str, note: &'static str) -> Field {
    Field { name, home: Refused, provider: FORBIDDEN, note }
}

/// Home leaves it out, and the provider does with it what is said.
const fn dropped(name: &'static str, provider: Provider, note: &'static str) -> Field {
    Field { name, home: Dropped, provider, note }
}

/// Every part of a pod whose fields are told apart.
pub const SECTIONS: &[Section] = &[
    POD,
    Section {
        title: "Containers of all kinds",
        at: &["containers[]", "initContainers[]", "ephemeralContainers[]"],
        fields: CONTAINER,
    },
    Section {
        title: "Resources",
        at: &["resources", "containers[].resources", "initContainers[].resources"],
        fields: RESOURCES,
    },
    Section {
        title: "Ports",
        at: &["containers[].ports[]", "initContainers[].ports[]", "ephemeralContainers[].ports[]"],
        fields: PORT,
    },
    Section {
        title: "Sources of variables",
        at: &[
            "containers[].env[].valueFrom",
            "initContainers[].env[].valueFrom",
            "ephemeralContainers[].env[].valueFrom",
        ],
        fields: VARIABLE,
    },
    Section {
        title: "Requests of probes and hooks",
        at: &[
            "containers[].livenessProbe.httpGet",
            "containers[].readinessProbe.httpGet",
            "containers[].startupProbe.httpGet",
            "containers[].lifecycle.postStart.httpGet",
            "containers[].lifecycle.preStop.httpGet",
            "containers[].livenessProbe.tcpSocket",
            "containers[].readinessProbe.tcpSocket",
            "containers[].startupProbe.tcpSocket",
            "containers[].lifecycle.postStart.tcpSocket",
            "containers[].lifecycle.preStop.tcpSocket",
            "initContainers[].startupProbe.httpGet",
            "initContainers[].startupProbe.tcpSocket",
        ],
        fields: REQUEST,
    },
    Section { title: "Volumes", at: &["volumes[]"], fields: VOLUME },
    Section { title: "Projected volumes", at: &["volumes[].projected.sources[]"], fields: PROJECTION },
    Section { title: "Security context of a pod", at: &["securityContext"], fields: POD_SECURITY },
    Section {
        title: "Security context of a container",
        at: &[
            "containers[].securityContext",
            "initContainers[].securityContext",
            "ephemeralContainers[].securityContext",
        ],
        fields: SECURITY,
    },
];

/// The spec of a pod itself.
pub const POD: Section = Section {
    title: "Pod",
    at: &[""],
    fields: &[
        sent("activeDeadlineSeconds"),
        dropped("affinity", OVERRULED, NODES),
        Field {
            name: "automountServiceAccountToken",
            home: Translated,
            provider: OVERRULED,
            note: "always false; the volume kube-api-access-* has a token of home",
        },
        noted("containers", "as below"),
        sent("dnsConfig"),
        noted("dnsPolicy", "names are looked up over there"),
        sent("enableServiceLinks"),
        noted("ephemeralContainers", "as below"),
        sent("hostAliases"),
        barred("hostIPC", HOST),
        barred("hostNetwork", HOST),
        barred("hostPID", HOST),
        noted("hostUsers", "with false, nodes over there must know user namespaces"),
        sent("hostname"),
        sent("hostnameOverride"),
        noted("imagePullSecrets", "Secrets of these names come along"),
        noted("initContainers", "as below"),
        dropped("nodeName", LEFT_OUT, "the scheduler over there finds a node"),
        dropped(
            "nodeSelector",
            OVERRULED,
            "it chose among the nodes of home; over there the pool of the Tenant counts",
        ),
        noted("os", "linux; windows is refused"),
        dropped("overhead", LEFT_OUT, "it follows from the RuntimeClass over there"),
        dropped("preemptionPolicy", LEFT_OUT, PRIORITY),
        dropped("priority", LEFT_OUT, PRIORITY),
        dropped("priorityClassName", LEFT_OUT, PRIORITY),
        dropped("readinessGates", LEFT_OUT, "their conditions are set at home, and count there"),
        barred("resourceClaims", "devices are claimed from the nodes of home"),
        noted("resources", "as below"),
        sent("restartPolicy"),
        dropped(
            "runtimeClassName",
            OVERRULED,
            "classes of home do not exist over there; that of the Tenant counts",
        ),
        dropped("schedulerName", LEFT_OUT, "the default scheduler over there finds a node"),
        dropped("schedulingGates", LEFT_OUT, "a pod that has a node has none left"),
        noted("securityContext", "as below"),
        dropped("serviceAccount", LEFT_OUT, ACCOUNTS),
        dropped("serviceAccountName", OVERRULED, ACCOUNTS),
        noted("setHostnameAsFQDN", "the domain is that of the namespace over there"),
        sent("shareProcessNamespace"),
        sent("subdomain"),
        sent("terminationGracePeriodSeconds"),
        dropped("tolerations", LEFT_OUT, "they are for taints of home"),
        dropped("topologySpreadConstraints", LEFT_OUT, NODES),
        noted("volumes", "as below"),
    ],
};

const CONTAINER: &[Field] = &[
    sent("args"),
    sent("command"),
    noted("env", "sources as below"),
    noted("envFrom", "ConfigMaps and Secrets of these names come along"),
    noted("image", "nodes over there must be able to pull it"),
    sent("imagePullPolicy"),
    noted("lifecycle", "requests as below"),
    noted("livenessProbe", "requests as below"),
    sent("name"),
    noted("ports", "as below"),
    noted("readinessProbe", "requests as below"),
    sent("resizePolicy"),
    noted("resources", "as below"),
    sent("restartPolicy"),
    sent("restartPolicyRules"),
    noted("securityContext", "as below"),
    noted("startupProbe", "requests as below"),
    sent("stdin"),
    sent("stdinOnce"),
    sent("targetContainerName"),
    sent("terminationMessagePath"),
    sent("terminationMessagePolicy"),
    sent("tty"),
    sent("volumeDevices"),
    sent("volumeMounts"),
    sent("workingDir"),
];

const RESOURCES: &[Field] = &[
    barred("claims", "devices are claimed from the nodes of home"),
    sent("limits"),
    noted("requests", "what is not said of a container's cpu and memory is its limit, else zero"),
];

const PORT: &[Field] = &[
    sent("containerPort"),
    noted("hostIP", "means nothing without hostPort"),
    barred("hostPort", HOST),
    sent("name"),
    sent("protocol"),
];

const VARIABLE: &[Field] = &[
    sent("configMapKeyRef"),
    Field {
        name: "fieldRef",
        home: Translated,
        provider: Provider::Kept,
        note: "metadata.namespace, metadata.uid, spec.nodeName and spec.serviceAccountName are those of home; status.podIP \
               and status.hostIP are those over there",
    },
    sent("fileKeyRef"),
    sent("resourceFieldRef"),
    sent("secretKeyRef"),
];

const REQUEST: &[Field] = &[
    barred("host", "a node over there would ask whom it names; leave it out, and the pod itself is asked"),
    sent("httpHeaders"),
    sent("path"),
    sent("port"),
    sent("scheme"),
];

const VOLUME: &[Field] = &[
    barred("awsElasticBlockStore", TIED),
    barred("azureDisk", TIED),
    barred("azureFile", TIED),
    barred("cephfs", TIED),
    barred("cinder", TIED),
    sent("configMap"),
    barred("csi", TIED),
    Field {
        name: "downwardAPI",
        home: Translated,
        provider: Provider::Kept,
        note: "metadata.namespace and metadata.uid are those of home; metadata.labels and metadata.annotations are those over \
               there",
    },
    sent("emptyDir"),
    Field {
        name: "ephemeral",
        home: Translated,
        provider: Provider::Kept,
        note: "into a persistentVolumeClaim of the claim that home makes, which has to be of a class such as liqo",
    },
    barred("fc", TIED),
    barred("flexVolume", TIED),
    barred("flocker", TIED),
    barred("gcePersistentDisk", TIED),
    barred("gitRepo", "a node would run git; use an init container"),
    barred("glusterfs", TIED),
    barred("hostPath", HOST),
    sent("image"),
    barred("iscsi", TIED),
    sent("name"),
    barred("nfs", TIED),
    noted(
        "persistentVolumeClaim",
        "the claim has to be of a class such as liqo, and its volume to lie over there",
    ),
    barred("photonPersistentDisk", TIED),
    barred("portworxVolume", TIED),
    noted("projected", "as below"),
    barred("quobyte", TIED),
    barred("rbd", TIED),
    barred("scaleIO", TIED),
    sent("secret"),
    barred("storageos", TIED),
    barred("vsphereVolume", TIED),
];

const PROJECTION: &[Field] = &[
    barred("clusterTrustBundle", "bundles of home do not exist over there; use a ConfigMap"),
    sent("configMap"),
    Field {
        name: "downwardAPI",
        home: Translated,
        provider: Provider::Kept,
        note: "as in a volume of its own",
    },
    barred("podCertificate", "signers of home do not exist over there"),
    sent("secret"),
    Field {
        name: "serviceAccountToken",
        home: Translated,
        provider: FORBIDDEN,
        note: "a token of home, from a Secret that home keeps fresh",
    },
];

const POD_SECURITY: &[Field] = &[
    noted("appArmorProfile", LOCAL_FILES),
    sent("fsGroup"),
    sent("fsGroupChangePolicy"),
    sent("runAsGroup"),
    sent("runAsNonRoot"),
    sent("runAsUser"),
    sent("seLinuxChangePolicy"),
    sent("seLinuxOptions"),
    noted("seccompProfile", LOCAL_FILES),
    sent("supplementalGroups"),
    sent("supplementalGroupsPolicy"),
    noted("sysctls", "those that nodes over there allow"),
    barred("windowsOptions", WINDOWS),
];

const SECURITY: &[Field] = &[
    sent("allowPrivilegeEscalation"),
    noted("appArmorProfile", LOCAL_FILES),
    noted("capabilities", BASELINE),
    Field {
        name: "privileged",
        home: Home::Travels,
        provider: FORBIDDEN,
        note: "unless the Tenant has the Pod Security level privileged",
    },
    noted("procMount", BASELINE),
    sent("readOnlyRootFilesystem"),
    sent("runAsGroup"),
    sent("runAsNonRoot"),
    sent("runAsUser"),
    sent("seLinuxOptions"),
    noted("seccompProfile", LOCAL_FILES),
    barred("windowsOptions", WINDOWS),
];
