//! A chain as people read it.

use ferro_core::pods::chain::{State, Step, broken};

use crate::{output, table};

const HEAD: [&str; 4] = ["LINK", "NAME", "STATE", "SHOWS"];

/// A line for each link, and what to do about the first that is broken.
pub(super) fn links(links: &[Step]) -> String {
    let row = |step: &Step| -> Vec<String> {
        let cells = [step.link.to_string(), step.name.clone(), word(step.state).into(), step.shows.clone()];
        cells.iter().map(|cell| output::plain(cell).replace('\n', " ")).collect()
    };
    let head = HEAD.map(str::to_owned).into();
    let rows: Vec<_> = std::iter::once(head).chain(links.iter().map(row)).collect();
    let fault = broken(links).and_then(|step| {
        let fault = step.fault.as_ref()?;
        Some(format!("Broken at the {} {}: {fault}", step.link, step.name))
    });
    table::aligned(&rows) + &output::below(fault.as_slice())
}

fn word(state: State) -> &'static str {
    match state {
        State::Good => "good",
        State::Waiting => "waiting",
        State::Broken => "broken",
        State::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::links;
    use crate::commands::trace::chain::verdict;
    use ferro_core::pods::chain::{Link, State, Step};

    #[test]
    fn each_link_is_a_line_and_the_broken_one_comes_last() {
        let step = |link, name: &str, state, shows: &str| Step {
            link,
            name: name.into(),
            state,
            shows: shows.into(),
            fault: (state == State::Broken).then(|| "the quota is used up".into()),
        };
        let chain = [
            step(Link::Pod, "shop/web", State::Waiting, "Pending, not ready"),
            step(Link::Namespace, "shop-rome", State::Good, "Accepted"),
            step(Link::ShadowPod, "shop-rome/web", State::Broken, "Rejected: QuotaExceeded"),
            step(Link::Tunnel, "turin", State::Unknown, "jane may\u{1b}[2J\nnot"),
        ];
        assert_eq!(
            links(&chain),
            "\
LINK        NAME            STATE     SHOWS
pod         shop/web        waiting   Pending, not ready
namespace   shop-rome       good      Accepted
ShadowPod   shop-rome/web   broken    Rejected: QuotaExceeded
tunnel      turin           unknown   jane may [2J not

Broken at the ShadowPod shop-rome/web: the quota is used up
"
        );
        let error = verdict(&chain).unwrap_err().to_string();
        assert_eq!(error, "the chain is broken at the ShadowPod shop-rome/web: the quota is used up");
        verdict(&chain[..2]).unwrap();
    }
}
