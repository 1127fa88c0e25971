//! Who is let in, and who is accepted: each answer with its reason, on both sides.

use anyhow::{Result, ensure};
use ferro_api::discovery::AuthState::{Accepted, Refused as TurnedAway};
use ferro_api::discovery::PeeringState;
use ferro_api::discovery::PeeringState::{Established, None as Unpeered, Pending, Refused};
use ferro_core::auth::{JoinToken, TokenSecret};
use rig::site::{Site, ferro};
use rig::wait::{block_on, eventually};

use crate::{Stage, add, ask, described, node_of, shows, shows_authentication, token};

const OUTGOING: &str = "OutgoingPeering";
const INCOMING: &str = "IncomingPeering";

#[test]
fn beyond_the_maximum_a_consumer_is_refused_until_a_place_is_free() -> Result<()> {
    block_on(async {
        let only_one = ["advertisement.requestConfig.maxAcceptableRequests=1"];
        let clusters: [(&str, &[&str]); 3] = [("turin", &only_one), ("rome", &[]), ("milan", &[])];
        let mut stage = Stage::set("maximum", &clusters).await?;
        let [turin, rome, milan] = stage.three()?;

        ask(rome, turin).await?;
        rome.reaches(turin, Established, Unpeered).await?;
        turin.reaches(rome, Unpeered, Established).await?;
        ask(milan, turin).await?;
        let advice = "raise advertisementConfig.requestConfig.maxAcceptableRequests";
        shows(turin, milan, INCOMING, "MaximumReached", &["1 are accepted", advice, "ferro accept"]).await?;
        shows(milan, turin, OUTGOING, "RefusedByPeer", &["turin gives nothing", "(MaximumReached)"]).await?;
        turin.reaches(milan, Unpeered, Refused).await?;
        milan.reaches(turin, Refused, Unpeered).await?;
        eventually("the refusal is an Event", || async {
            let (_, events) = described(turin, milan).await?;
            let warns = |line: &str| line.contains("Warning") && line.contains("MaximumReached");
            ensure!(events.lines().any(warns), "{events}");
            Ok(())
        })
        .await?;
        ensure!(node_of(milan, turin).await.is_err(), "milan has a node without an offer");
        turin.is(rome, Unpeered, Established).await?;

        ferro(&rome.cluster, &["unpeer", "turin"]).await?;
        milan.reaches(turin, Established, Unpeered).await?;
        turin.reaches(rome, Unpeered, Unpeered).await
    })
}

#[test]
fn by_hand_each_side_waits_for_its_person() -> Result<()> {
    block_on(async {
        let requests = ["advertisement.requestConfig.acceptPolicy=Manual"];
        let offers = ["advertisement.ingoingConfig.acceptPolicy=Manual"];
        let mut stage = Stage::set("manual", &[("turin", &requests), ("rome", &offers)]).await?;
        let [turin, rome] = stage.two()?;
        let (on_turin, on_rome) = ("ferro accept rome", "ferro accept turin");

        ask(rome, turin).await?;
        shows(turin, rome, INCOMING, "WaitsForDecision", &[on_turin, "ferro refuse rome"]).await?;
        let person = "a person has to decide (WaitsForDecision)";
        shows(rome, turin, OUTGOING, "WaitsForPeer", &["turin has not decided yet", person]).await?;
        both(rome, Pending, turin, Pending).await?;

        ferro(&turin.cluster, &["accept", "rome"]).await?;
        shows(rome, turin, OUTGOING, "WaitsForDecision", &[on_rome, "ferro refuse turin"]).await?;
        shows(turin, rome, INCOMING, "WaitsForPeer", &["has not decided yet", person]).await?;
        both(rome, Pending, turin, Pending).await?;
        ensure!(node_of(rome, turin).await.is_err(), "the offer is used before anybody said so");

        ferro(&rome.cluster, &["accept", "turin"]).await?;
        both(rome, Established, turin, Established).await?;

        ferro(&rome.cluster, &["refuse", "turin", "--offer", "--wait"]).await?;
        shows(rome, turin, OUTGOING, "RefusedByHand", &["spec.offer", on_rome]).await?;
        shows(turin, rome, INCOMING, "RefusedByPeer", &["declines the offer", "(RefusedByHand)"]).await?;
        both(rome, Refused, turin, Refused).await?;
        ensure!(node_of(rome, turin).await.is_err(), "the node is still there");

        ferro(&rome.cluster, &["accept", "turin", "--offer", "--wait"]).await?;
        both(rome, Established, turin, Established).await?;

        ferro(&turin.cluster, &["refuse", "rome", "--request", "--wait"]).await?;
        shows(turin, rome, INCOMING, "RefusedByHand", &["spec.incoming", on_turin]).await?;
        shows(rome, turin, OUTGOING, "RefusedByPeer", &["turin gives nothing", "(RefusedByHand)"]).await?;
        both(rome, Refused, turin, Refused).await?;
        ensure!(node_of(rome, turin).await.is_err(), "the node is still there");

        ferro(&turin.cluster, &["accept", "rome", "--request", "--wait"]).await?;
        both(rome, Established, turin, Established).await
    })
}

/// Waits until consumer and provider agree on how far they are.
async fn both(
    consumer: &Site,
    outgoing: PeeringState,
    provider: &Site,
    incoming: PeeringState,
) -> Result<()> {
    consumer.reaches(provider, outgoing, Unpeered).await?;
    provider.reaches(consumer, Unpeered, incoming).await
}

#[test]
fn only_the_right_token_lets_a_cluster_in() -> Result<()> {
    block_on(async {
        let mut stage = Stage::set("tokens", &[("turin", &[]), ("rome", &[])]).await?;
        let [turin, rome] = stage.two()?;
        let right = token(turin).await?;
        let parts: JoinToken = right.parse()?;

        let address = parts.auth_url.to_string();
        ferro(&rome.cluster, &["add", &address, "--name", "turin"]).await?;
        ferro(&rome.cluster, &["peer", "turin"]).await?;
        let advice = "run ferro token there, and what it prints here";
        let empty = "the other cluster wants a token";
        shows_authentication(rome, turin, TurnedAway, "EmptyTokenNotAllowed", &[empty, advice]).await?;
        shows(rome, turin, "Authenticated", "RefusedByPeer", &[empty, advice]).await?;
        shows(rome, turin, OUTGOING, "NotAuthenticated", &["turin has not let this cluster in"]).await?;
        turin.is_alone().await?;

        let wrong = JoinToken { secret: TokenSecret::new([7; 32]), ..parts };
        let refusal = add(rome, &wrong.reveal(), &["--wait"]).await.err().map(|error| error.to_string());
        let unknown = "the other cluster does not know the token";
        ensure!(refusal.as_ref().is_some_and(|text| text.contains(unknown)), "ferro add says {refusal:?}");
        shows_authentication(rome, turin, TurnedAway, "InvalidToken", &[unknown, advice]).await?;
        shows(rome, turin, "Authenticated", "RefusedByPeer", &[unknown, advice]).await?;
        turin.is_alone().await?;

        add(rome, &right, &["--wait"]).await?;
        shows(rome, turin, "Authenticated", "LetIn", &["turin has let this cluster in"]).await?;
        rome.reaches(turin, Established, Unpeered).await?;
        let authentication = rome.peer(turin).await?.status.and_then(|status| status.authentication);
        let accepted = authentication.as_ref().is_some_and(|said| said.state == Accepted);
        ensure!(accepted, "{authentication:?}");
        Ok(())
    })
}
