//! What a person sees while something is waited for: each piece of news once, beside the result.

use std::collections::BTreeMap;

use crate::output;

/// Tells each piece of news once.
#[derive(Default)]
pub(crate) struct Teller {
    told: BTreeMap<String, String>,
    place: Option<String>,
}

impl Teller {
    /// With the name of a cluster before each line.
    pub(crate) fn at(place: &str) -> Self {
        Self { place: Some(place.to_owned()), ..Self::default() }
    }

    /// Tells what is new, of each subject.
    pub(crate) fn tell<S: Into<String>>(&mut self, news: impl IntoIterator<Item = (S, String)>) {
        for (subject, text) in news {
            let subject = subject.into();
            if self.told.get(&subject) != Some(&text) {
                let place = self.place.as_ref().map_or_else(String::new, |place| format!("{place}: "));
                output::note(&format!("{place}{text}"));
                self.told.insert(subject, text);
            }
        }
    }
}
