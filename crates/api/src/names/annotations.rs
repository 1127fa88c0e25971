//! Annotations.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The identifier of the cluster that an object comes from; also a label.
pub const ORIGIN_ID: Annotation = Annotation { key: super::labels::ORIGIN_ID.key() };

/// An annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Annotation {
    pub(super) key: &'static str,
}

impl Annotation {
    /// The key.
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// The value on this object.
    pub fn of<'a>(&self, meta: &'a ObjectMeta) -> Option<&'a str> {
        meta.annotations.as_ref()?.get(self.key).map(String::as_str)
    }

    /// Puts the annotation on this object, in place of an earlier value.
    pub fn put_on(&self, meta: &mut ObjectMeta, value: impl Into<String>) {
        meta.annotations.get_or_insert_default().insert(self.key.into(), value.into());
    }

    /// Takes the annotation off this object.
    pub fn take_off(&self, meta: &mut ObjectMeta) {
        if let Some(annotations) = &mut meta.annotations {
            annotations.remove(self.key);
        }
    }
}
