//! Events: what people are told about an object, told in one place, since an API server takes no long one at all.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tracing::warn;

/// As many bytes as an API server takes for what an Event says.
const LONGEST: usize = 1024;

/// Who tells.
pub struct Teller {
    recorder: Recorder,
    /// What it does with all these objects.
    action: &'static str,
}

impl Teller {
    /// Tells in the name of this manager.
    pub fn new(client: Client, manager: &str, action: &'static str) -> Self {
        let reporter = Reporter { controller: manager.to_owned(), instance: None };
        Self { recorder: Recorder::new(client, reporter), action }
    }

    /// Says something about an object. Whether it could be written down: an Event is not worth stopping for, but whoever
    /// says a thing only once may want to say it again.
    pub async fn tell(&self, about: &ObjectReference, is_warning: bool, reason: &str, note: &str) -> bool {
        let event = Event {
            type_: if is_warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(cut(note).to_owned()),
            action: self.action.to_owned(),
            secondary: None,
        };
        let told = self.recorder.publish(&event, about).await;
        if let Err(error) = &told {
            warn!(?about, reason, note, %error, "an Event could not be written");
        }
        told.is_ok()
    }
}

/// A sentence as long as it may be, cut between characters.
fn cut(note: &str) -> &str {
    &note[..note.floor_char_boundary(LONGEST)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sentence_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"é".repeat(5000)).len(), LONGEST);
        assert_eq!(cut(&format!("a{}", "é".repeat(5000))).len(), LONGEST - 1);
    }
}
