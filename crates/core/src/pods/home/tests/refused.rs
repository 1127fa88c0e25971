//! Changes of a running pod that the provider does not follow.

use k8s_openapi::jiff::Timestamp;

use super::{kinds, local, running};
use crate::pods::home::model::World;
use crate::pods::home::{Plan, Write};
use crate::pods::provider::{Refused, after_change};

/// The provider has tried, and says what it could not do.
fn say(world: &mut World, refused: &[Refused]) {
    let shadow = world.shadow.as_mut().unwrap();
    shadow.status = Some(after_change(shadow, refused, Timestamp::UNIX_EPOCH).unwrap());
}

#[test]
fn what_the_provider_does_not_follow_is_shown_and_told_once() {
    let mut world = running("Always");
    let size = |message: &str| [Refused { is_size: true, message: message.to_owned() }];
    say(&mut world, &size("no room for two"));
    let plan = world.plan();
    assert_eq!(kinds(&plan), ["show", "tell"]);
    let Some(Write::Tell(notice)) = plan.writes.last() else { panic!("{plan:?}") };
    assert!(notice.warning && notice.reason == "CannotChange", "{notice:?}");
    assert!(notice.note.contains("no room for two"), "{notice:?}");
    world.work(2);
    assert_eq!(world.plan(), Plan::default());
    say(&mut world, &size("no room for three"));
    assert_eq!(kinds(&world.plan()), ["show", "tell"], "that is another one");
    world.work(2);
    say(&mut world, &[]);
    assert_eq!(kinds(&world.plan()), ["show"], "nothing is left to complain of");
    world.work(1);
    let conditions = local(&world).status.as_ref().unwrap().conditions.as_ref().unwrap();
    assert!(conditions.iter().all(|one| one.type_ != "PodResizePending"), "{conditions:?}");
}

#[test]
fn what_was_said_of_a_former_wish_is_not_told() {
    let mut world = running("Always");
    say(&mut world, &[Refused { is_size: false, message: "env cannot be changed".to_owned() }]);
    world.shadow.as_mut().unwrap().metadata.generation = Some(9);
    assert_eq!(world.plan(), Plan::default());
}
