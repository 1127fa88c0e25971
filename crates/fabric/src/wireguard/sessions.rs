//! The sessions with a peer: the one to send by, the one before it, and the one to come.
//!
//! Who began a handshake knows at the response that both sides have the keys, and sends by them at once. The other side
//! knows it only when the first message comes, and sends by its old session until then. Messages that are still on
//! their way are received by whichever session they were sent by.

use std::sync::Arc;
use std::time::Instant;

use super::replay::Window;
use super::session::{Role, Session};

/// A session, and what has come by it.
pub(super) struct Slot {
    pub(super) session: Arc<Session>,
    pub(super) window: Window,
}

/// There is a new session to send by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Confirmed {
    /// The index of the one that had to go.
    pub(super) forgotten: Option<u32>,
}

/// The sessions with one peer.
#[derive(Default)]
pub(super) struct Sessions {
    previous: Option<Slot>,
    current: Option<Slot>,
    next: Option<Slot>,
}

impl Sessions {
    /// A handshake is done.
    pub(super) fn add(&mut self, session: Arc<Session>, role: Role) {
        let slot = Slot { session, window: Window::default() };
        match role {
            Role::Initiator => {
                // One to come that was never used is younger than the current one.
                let current = self.current.replace(slot);
                self.previous = self.next.take().or(current);
            }
            // The one before stays: where both sides began at once, the peer sends by it until it has our answer.
            Role::Responder => self.next = Some(slot),
        }
    }

    /// The session that the peer addresses by this index.
    pub(super) fn addressed(&mut self, index: u32) -> Option<&mut Slot> {
        let all = [&mut self.previous, &mut self.current, &mut self.next].into_iter().flatten();
        all.into_iter().find(|slot| slot.session.local() == index)
    }

    /// A genuine message came by this session. What follows if it is now the one to send by, and was not before.
    pub(super) fn confirm(&mut self, index: u32) -> Option<Confirmed> {
        let next = self.next.take_if(|next| next.session.local() == index)?;
        let before = std::mem::replace(&mut self.previous, self.current.replace(next));
        Some(Confirmed { forgotten: before.map(|slot| slot.session.local()) })
    }

    /// The one to send by.
    pub(super) fn current(&self, now: Instant) -> Option<&Arc<Session>> {
        self.current.as_ref().map(|slot| &slot.session).filter(|session| session.can_send(now))
    }

    /// The indices by which the peer addresses them.
    pub(super) fn indices(&self) -> [Option<u32>; 3] {
        [&self.previous, &self.current, &self.next].map(|slot| slot.as_ref().map(|slot| slot.session.local()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::{Confirmed, Role, Sessions};
    use crate::wireguard::session::tests::with_index;

    fn after(steps: &[(u32, Role)]) -> Sessions {
        let mut sessions = Sessions::default();
        for (index, role) in steps {
            sessions.add(Arc::new(with_index(*index)), *role);
        }
        sessions
    }

    #[test]
    fn who_began_sends_by_the_new_session_at_once() {
        let sessions = after(&[(1, Role::Initiator), (2, Role::Initiator), (3, Role::Initiator)]);
        assert_eq!(sessions.indices(), [Some(2), Some(3), None]);
        assert_eq!(sessions.current(Instant::now()).map(|session| session.local()), Some(3));
    }

    #[test]
    fn who_answered_waits_for_the_first_message() {
        let mut sessions = after(&[(1, Role::Initiator), (2, Role::Initiator), (3, Role::Responder)]);
        assert_eq!(sessions.indices(), [Some(1), Some(2), Some(3)]);
        assert_eq!(sessions.confirm(2), None);
        assert_eq!(sessions.confirm(3), Some(Confirmed { forgotten: Some(1) }));
        assert_eq!(sessions.confirm(3), None);
        assert_eq!(sessions.indices(), [Some(2), Some(3), None]);
    }

    #[test]
    fn a_second_answer_takes_the_place_of_the_first() {
        let sessions = after(&[(1, Role::Initiator), (2, Role::Responder), (3, Role::Responder)]);
        assert_eq!(sessions.indices(), [None, Some(1), Some(3)]);
    }

    #[test]
    fn when_both_began_at_once_each_receives_by_the_others_session() {
        let mut sessions = after(&[(1, Role::Initiator), (2, Role::Responder), (3, Role::Initiator)]);
        assert_eq!(sessions.indices(), [Some(2), Some(3), None]);
        assert!(sessions.addressed(2).is_some() && sessions.addressed(1).is_none());
    }
}
