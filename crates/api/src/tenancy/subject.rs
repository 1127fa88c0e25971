//! Who may act in a Tenant: a user, a group, or a service account, as the authentication of this cluster knows them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// A user, a group or a service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = schema::rule(
    "(self.kind == 'ServiceAccount') == has(self.__namespace__)",
    "namespace must be given for a ServiceAccount, and for nobody else"
))]
pub struct Subject {
    /// User, Group or ServiceAccount.
    pub kind: SubjectKind,

    /// The name of the user, the group or the service account.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,

    /// The namespace of the service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(transform = schema::namespace)]
    pub namespace: Option<String>,
}

/// What sort of subject it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = schema::described_by_field)]
pub enum SubjectKind {
    /// A user.
    User,
    /// A group of users.
    Group,
    /// A service account of this cluster.
    ServiceAccount,
}
