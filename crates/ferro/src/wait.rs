//! Waiting for a cluster to get somewhere, with an end to patience.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;
use tokio::time::Instant;

/// How often to look again. A command serves one person, so that a question a second is cheap enough.
const GLANCE: Duration = Duration::from_millis(500);

/// Longer than anybody waits, and short enough for any clock.
const FOREVER: Duration = Duration::from_hours(24 * 365);

/// Reads a duration as people write them: `90s`, `5m`, `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|duration| duration.try_into().ok());
    parsed.ok_or_else(|| "write it as 90s, 5m or 1h30m".to_owned())
}

/// When patience ends.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// That long from now.
    pub(crate) fn after(patience: Duration) -> Self {
        Self(Instant::now() + patience.min(FOREVER))
    }

    /// Looks again and again until there is something to see; nothing when patience ends first.
    pub(crate) async fn until<T>(
        self,
        mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<Option<T>> {
        loop {
            let seen = look().await?;
            if seen.is_some() || Instant::now() >= self.0 {
                return Ok(seen);
            }
            tokio::time::sleep_until(self.0.min(Instant::now() + GLANCE)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Deadline, duration};
    use std::time::Duration;

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        assert!(duration("5").is_err() && duration("-5s").is_err() && duration("soon").is_err());
    }

    #[tokio::test]
    async fn it_looks_at_least_once_and_gives_up_in_the_end() {
        let now = Deadline::after(Duration::ZERO);
        assert_eq!(now.until(async || Ok(Some(1))).await.unwrap(), Some(1));
        assert_eq!(now.until(async || Ok(None::<u8>)).await.unwrap(), None);
    }
}
