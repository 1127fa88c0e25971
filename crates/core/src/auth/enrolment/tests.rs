//! The requester's next step, over all that may have happened.

use std::time::Duration;

use ferro_api::discovery::{AuthState, Authentication};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::{
    Claim, Conflict, Facts, Held, Meeting, Patience, Premises, Setback, Step, Target, next_step, shown,
};
use crate::auth::tests::at;
use crate::auth::{Denial, Pin, Reason, TokenSecret};
use crate::identity::ClusterId;
use crate::identity::tests::cluster;

const URL: &str = "https://192.0.2.7:6443";
/// A certificate for this long is renewed after about two thirds of it.
const LIFE: u64 = 3000;

fn id(number: u8) -> ClusterId {
    cluster(number).identity().id()
}

fn premises() -> Premises {
    let target = Target {
        address: "192.0.2.7".into(),
        pin: Some(Pin([1; 32])),
        cluster: Some(id(1)),
        configuration: 1,
    };
    Premises { target, token: None, rejected: false }
}

fn meeting(seconds: u64) -> Meeting {
    let target = Target { pin: None, cluster: None, ..premises().target };
    let api_server = Some(URL.parse().unwrap());
    Meeting { target, pin: Pin([1; 32]), cluster: id(1), api_server, at: at(seconds) }
}

fn held() -> Held {
    Held { issued_at: at(0), expires_at: at(LIFE), api_server: URL.parse().unwrap(), granted_at: None }
}

fn denied(reason: Reason, before: Option<&Setback>, seconds: u64) -> Setback {
    let denial = Denial::from(reason);
    Setback::new(premises(), denial.status(), Patience::after(denial, false), before, "peer", at(seconds))
}

/// Facts that a test changes where it wants.
struct Case {
    premises: Premises,
    meeting: Option<Meeting>,
    held: Option<Held>,
    setback: Option<Setback>,
}

impl Case {
    fn new(held: Option<Held>) -> Self {
        Self { premises: premises(), meeting: Some(meeting(0)), held, setback: None }
    }

    fn facts(&self, seconds: u64) -> Facts<'_> {
        let Self { premises, meeting, held, setback } = self;
        Facts {
            premises,
            meeting: meeting.as_ref(),
            held: held.as_ref(),
            setback: setback.as_ref(),
            now: at(seconds),
        }
    }

    fn step(&self, seconds: u64) -> Step {
        next_step(&self.facts(seconds))
    }

    fn shown(&self, seconds: u64) -> Option<Authentication> {
        shown(&self.facts(seconds))
    }

    fn state(&self, seconds: u64) -> Option<AuthState> {
        self.shown(seconds).map(|shown| shown.state)
    }
}

#[test]
fn a_peer_is_met_then_asked_then_left_alone_until_the_renewal() {
    let mut case = Case { meeting: None, ..Case::new(None) };
    assert_eq!(case.step(0), Step::Meet);
    assert_eq!(case.shown(0), None);
    case.meeting = Some(meeting(0));
    assert_eq!(case.step(1), Step::Enrol);
    case.held = Some(held());
    let Step::Wait { until } = case.step(2) else { panic!("{:?}", case.step(2)) };
    assert!(at(LIFE / 2) < until && until < at(LIFE), "{until}");
    assert_eq!(case.state(2), Some(AuthState::Accepted));
    assert_eq!(case.shown(2).unwrap().expiration_time.unwrap().0, at(LIFE));
    assert_eq!(case.step(LIFE - 100), Step::Meet, "the meeting was long ago");
    case.meeting = Some(meeting(LIFE - 100));
    assert_eq!(case.step(LIFE - 99), Step::Enrol);
}

#[test]
fn what_a_meeting_found_out_may_be_written_down() {
    let unsettled = Premises { target: meeting(0).target, ..premises() };
    assert!(meeting(0).is_about(&unsettled.target));
    assert!(meeting(0).is_about(&premises().target));
    assert_eq!(unsettled.settled(Some(&meeting(0))), premises());
}

#[test]
fn another_address_key_cluster_or_configuration_is_met_anew() {
    for change in [
        (|target: &mut Target| target.address = "192.0.2.8".into()) as fn(&mut Target),
        |target| target.pin = Some(Pin([2; 32])),
        |target| target.cluster = Some(id(2)),
        |target| target.configuration = 2,
    ] {
        let mut case = Case::new(Some(held()));
        change(&mut case.premises.target);
        assert_eq!(case.step(1), Step::Meet);
    }
}

#[test]
fn a_peer_whose_api_server_moved_is_asked_for_the_new_address_once() {
    let mut case = Case::new(Some(held()));
    case.meeting.as_mut().unwrap().api_server = Some("https://192.0.2.9:6443".parse().unwrap());
    assert_eq!(case.step(1), Step::Enrol);
    case.held.as_mut().unwrap().granted_at = Some(at(1));
    assert!(matches!(case.step(2), Step::Wait { .. }), "it was asked since");
}

#[test]
fn a_rejected_certificate_is_replaced() {
    let mut case = Case::new(Some(held()));
    case.premises.rejected = true;
    assert_eq!(case.step(100), Step::Enrol);
    assert_eq!(case.state(100), Some(AuthState::Pending));
    case.held.as_mut().unwrap().granted_at = Some(at(100));
    assert_eq!(case.step(101), Step::Wait { until: at(130) }, "that may have been about the one before");
    assert_eq!(case.state(101), Some(AuthState::Accepted));
    assert_eq!(case.step(130), Step::Enrol);
}

#[test]
fn an_expired_certificate_is_replaced() {
    let mut case = Case::new(Some(held()));
    case.meeting = Some(meeting(LIFE));
    assert_eq!(case.step(LIFE), Step::Enrol);
    assert_eq!(case.state(LIFE), Some(AuthState::Pending));
}

#[test]
fn a_renewal_that_fails_leaves_no_gap() {
    let mut case = Case::new(Some(held()));
    let wait = Patience::After(Duration::from_hours(1));
    let problem = Denial::from(Reason::Unavailable).status();
    case.setback = Some(Setback::new(premises(), problem, wait, None, "peer", at(LIFE - 10)));
    assert_eq!(case.step(LIFE - 9), Step::Wait { until: at(LIFE) }, "to show that it has expired");
    let shown = case.shown(LIFE - 9).unwrap();
    assert_eq!(shown.state, AuthState::Accepted);
    assert!(shown.message.unwrap().contains("cannot answer now"));
    assert_eq!(case.state(LIFE), Some(AuthState::Pending));
}

#[test]
fn a_setback_that_was_overcome_is_not_shown() {
    let mut case = Case { meeting: None, ..Case::new(Some(held())) };
    case.setback = Some(denied(Reason::Unavailable, None, 0));
    assert!(case.shown(0).unwrap().message.is_some());
    assert_eq!(case.step(1), Step::Meet);
    assert!(case.shown(1).unwrap().message.is_some(), "it is being tried");
    case.meeting = Some(meeting(1));
    assert_eq!(case.shown(1).unwrap().message, None);
}

#[test]
fn a_setback_holds_until_something_changes() {
    let mut case = Case::new(None);
    case.setback = Some(denied(Reason::InvalidToken, None, 0));
    assert_eq!(case.step(1_000_000), Step::Wait { until: Timestamp::MAX });
    assert_eq!(case.state(1), Some(AuthState::Refused));
    case.premises.token = Some(TokenSecret::new([1; 32]).hash());
    assert_eq!(case.step(1), Step::Enrol);
    assert_eq!(case.shown(1), None, "what was shown stays until there is something to say");
}

#[test]
fn what_may_pass_by_itself_is_tried_again_ever_more_slowly() {
    let mut setback: Option<Setback> = None;
    let mut waits = Vec::new();
    for _ in 0..9 {
        let next = denied(Reason::RateLimited, setback.as_ref(), 0);
        waits.push(next.again.duration_since(at(0)).as_secs_f64());
        setback = Some(next);
    }
    for (wait, full) in waits.iter().zip([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]) {
        assert!((full * 0.75..=full).contains(wait), "{waits:?}");
    }
    let mut changed = setback.unwrap();
    changed.premises.rejected = true;
    assert!(denied(Reason::RateLimited, Some(&changed), 0).again <= at(1), "a change begins anew");
}

#[test]
fn what_is_tried_again_at_once_is_so_three_times() {
    let mut setback: Option<Setback> = None;
    for round in 0..5 {
        let next = denied(Reason::ExpiredChallenge, setback.as_ref(), 0);
        assert_eq!(next.again == at(0), round < 3, "{round}");
        setback = Some(next);
    }
}

#[test]
fn who_holds_a_certificate_does_not_wait_for_a_token_for_ever() {
    for (reason, with, without) in [
        (Reason::UsedToken, Patience::After(super::HOPE), Patience::UntilChange),
        (Reason::EmptyTokenNotAllowed, Patience::After(super::HOPE), Patience::After(super::LITTLE_HOPE)),
        (Reason::WrongAudience, Patience::After(super::LITTLE_HOPE), Patience::After(super::LITTLE_HOPE)),
    ] {
        assert_eq!(Patience::after(reason.into(), true), with);
        assert_eq!(Patience::after(reason.into(), false), without);
    }
}

#[test]
fn of_several_for_one_cluster_the_first_stands_for_it() {
    let claim = |since, name: &str, number| Claim {
        since: Some(at(since)),
        name: name.into(),
        cluster: id(number).to_string(),
    };
    let claims = [claim(2, "a", 1), claim(1, "b", 1), claim(0, "c", 2)];
    let find = |name: &str, number| Conflict::find(name, &id(number), &id(9), &claims);
    assert_eq!(find("b", 1), None);
    assert_eq!(find("a", 1), Some(Conflict::Duplicate("b".into())));
    assert_eq!(find("new", 1), Some(Conflict::Duplicate("b".into())));
    assert_eq!(find("new", 3), None);
    assert_eq!(find("new", 9), Some(Conflict::Ourselves));
    let shown = Conflict::Duplicate("b".into()).shown();
    assert_eq!((shown.state, shown.reason.as_deref()), (AuthState::Refused, Some("Duplicate")));
    assert!(shown.message.unwrap().contains("ForeignCluster b"));
}

proptest! {
    #[test]
    fn a_certificate_that_holds_stays_accepted(
        seconds in 0..LIFE,
        waited in 0_u64..600,
        reason in prop::sample::select(vec![Reason::Unavailable, Reason::UsedToken, Reason::Malformed]),
        met: bool,
    ) {
        let mut case = Case::new(Some(held()));
        case.setback = Some(denied(reason, None, seconds.saturating_sub(waited)));
        case.meeting = met.then(|| meeting(0));
        prop_assert_eq!(case.state(seconds), Some(AuthState::Accepted));
        if let Step::Wait { until } = case.step(seconds) {
            prop_assert!(at(seconds) < until && until <= at(LIFE));
        }
    }
}
