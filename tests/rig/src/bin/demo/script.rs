//! The steps of the story, in their order. A person at the keyboard may take over once the shop is open.

use std::fmt;

use anyhow::{Context, Result};
use tokio::sync::mpsc;

use crate::NAME;
use crate::clusters::{ALL, Clusters, HOME, LOST, OTHER};
use crate::orders::{ALLOWED, Record};
use crate::shop::{self, Customers};
use crate::story::{News, Story};
use crate::watch;

/// Something that is done while the shop is open: by the script, or by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Cut a cluster off.
    Cut,
    /// Mend that.
    Heal,
    /// More or fewer instances.
    Scale,
    /// End the peerings.
    Unpeer,
    /// End everything.
    Quit,
}

/// What the script does by itself, each after orders were watched for so many seconds.
const SCRIPT: [(u64, Deed); 3] = [(8, Deed::Cut), (15, Deed::Heal), (8, Deed::Unpeer)];
/// How long the first orders may take to find their way.
const OPENING: u64 = 3;
/// For how long orders may fail, or fail to come, as the shop opens: longer than a customer waits, since nothing is promised
/// of that.
const OPENING_ALLOWED: f64 = 10.0;
/// How long orders are watched in the end.
const LAST_LOOK: u64 = 5;
/// Instances of each part, as the manifests say and after scaling.
const REPLICAS: [u32; 2] = [2, 4];

/// How it ended.
pub struct Ending {
    record: Record,
    /// What to try next, where all is left running.
    farewell: String,
    /// Whether a person at the keyboard made the story another one.
    by_hand: bool,
}

impl Ending {
    /// Whether orders worked before, during and after; who plays with the clusters may break that, but no order.
    pub fn is_good(&self) -> bool {
        if self.by_hand { self.record.is_begun() && self.record.is_right() } else { self.record.is_good() }
    }

    fn verdict(&self) -> &'static str {
        match (self.by_hand, self.is_good()) {
            (false, true) => "all of it worked",
            (false, false) => "orders did not work all the time",
            (true, true) => "you had the keys: orders were taken, and none was wrong",
            (true, false) => "you had the keys: no order was taken, or some were wrong",
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n{}{}", self.record, self.verdict(), self.farewell)
    }
}

/// How it is to be told.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Whether the clusters stay.
    pub keep: bool,
    /// Whether somebody looks at the clusters meanwhile.
    pub is_live: bool,
}

/// Tells the whole story.
pub async fn tell(
    story: Story,
    deeds: mpsc::UnboundedReceiver<Deed>,
    Setting { keep, is_live }: Setting,
) -> Result<Ending> {
    let clusters = Clusters::start(&story, keep).await?;
    let _watching = is_live.then(|| watch::begin(&clusters, &story)).transpose()?;
    clusters.install(&story).await?;
    clusters.peer(&story).await?;
    shop::offload(&clusters, &story).await?;
    shop::refuse(&clusters, &story).await?;
    shop::deploy(&clusters, &story).await?;
    let customers = Customers::come(clusters.home()?, &story).await?;
    let mut open = Open {
        clusters: &clusters,
        story: &story,
        customers: &customers,
        deeds,
        is_cut: false,
        is_alone: false,
        replicas: 0,
    };
    let by_hand = open.run(keep).await?;
    open.heal().await?;
    if keep {
        return Ok(Ending { record: customers.so_far(), farewell: farewell(&clusters)?, by_hand });
    }
    open.unpeer().await?;
    story.chapter("cleaning up");
    let record = customers.leave().await?;
    shop::close(&clusters, &story).await?;
    clusters.uninstall(&story).await?;
    story.say("the clusters end with this program; KEEP=1 leaves them running");
    Ok(Ending { record, farewell: String::new(), by_hand })
}

/// The shop while it is open.
struct Open<'a> {
    clusters: &'a Clusters,
    story: &'a Story,
    customers: &'a Customers,
    deeds: mpsc::UnboundedReceiver<Deed>,
    is_cut: bool,
    /// Whether the peerings are over.
    is_alone: bool,
    /// Which of the numbers of replicas there are.
    replicas: usize,
}

impl Open<'_> {
    /// Goes by the script until a person takes over, and then by what that person does. Says which it was.
    async fn run(&mut self, keep: bool) -> Result<bool> {
        self.story.chapter("orders");
        self.story.tell(News::Open);
        self.customers.begin("as the shop opens", OPENING_ALLOWED);
        self.customers.watch(OPENING).await?;
        self.customers.begin("before the cut", 0.0);
        // Who wants to keep the clusters wants to keep their peerings.
        let steps = if keep { &SCRIPT[..2] } else { &SCRIPT[..] };
        for (seconds, deed) in steps {
            if let Some(by_hand) = self.taken_over(*seconds).await? {
                return self.follow(by_hand).await.map(|()| true);
            }
            self.perform(*deed).await?;
        }
        match self.taken_over(LAST_LOOK).await? {
            Some(by_hand) => self.follow(by_hand).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Watches orders for so many seconds, unless a key is pressed.
    async fn taken_over(&mut self, seconds: u64) -> Result<Option<Deed>> {
        tokio::select! {
            Some(deed) = self.deeds.recv() => Ok(Some(deed)),
            watched = self.customers.watch(seconds) => watched.map(|()| None),
        }
    }

    /// Does what a person wants, until that is to end.
    async fn follow(&mut self, first: Deed) -> Result<()> {
        self.story.say("you have the keys: c cuts, h heals, s scales, u unpeers, q ends");
        let mut next = Some(first);
        while let Some(deed) = next.filter(|deed| *deed != Deed::Quit) {
            self.perform(deed).await?;
            next = self.deeds.recv().await;
        }
        Ok(())
    }

    async fn perform(&mut self, deed: Deed) -> Result<()> {
        match deed {
            Deed::Cut => self.cut().await,
            Deed::Heal => self.heal().await,
            Deed::Unpeer => self.unpeer().await,
            Deed::Scale => {
                self.replicas = (self.replicas + 1) % REPLICAS.len();
                shop::scale(self.clusters, self.story, REPLICAS[self.replicas]).await
            }
            Deed::Quit => Ok(()),
        }
    }

    async fn cut(&mut self) -> Result<()> {
        if self.is_cut || self.is_alone {
            return Ok(());
        }
        self.story.chapter("the cut");
        self.customers.begin(format!("while {LOST} is cut off"), ALLOWED);
        self.is_cut = true;
        self.clusters.cut().await?;
        self.story.tell(News::Cut(Some(LOST.into())));
        self.story.say(format!("{LOST} is cut off from {HOME} and from the rest of the world; orders go on"));
        Ok(())
    }

    async fn heal(&mut self) -> Result<()> {
        if !self.is_cut {
            return Ok(());
        }
        self.story.chapter("healing");
        self.customers.begin("after it is back", ALLOWED);
        self.clusters.heal().await?;
        self.is_cut = false;
        self.story.tell(News::Cut(None));
        self.clusters.joined().await?;
        self.story.say(format!("the wire is mended, and all tunnels to {LOST} carry packets again"));
        Ok(())
    }

    async fn unpeer(&mut self) -> Result<()> {
        if self.is_alone {
            return Ok(());
        }
        self.heal().await?;
        self.story.chapter("parting");
        self.customers.begin("while all comes home", ALLOWED);
        self.is_alone = true;
        for peer in [LOST, OTHER] {
            self.clusters.unpeer(self.story, peer).await?;
            shop::settled(self.clusters).await?;
        }
        Ok(())
    }
}

/// What to try with clusters that stay.
fn farewell(clusters: &Clusters) -> Result<String> {
    let mut lines = vec![String::new()];
    for name in ALL {
        lines.push(format!("export KUBECONFIG={}    # {name}", clusters.get(name)?.kubeconfig.display()));
    }
    let kubectl = clusters.home()?.kubectl_command();
    let kubectl = kubectl.as_std().get_program().to_str().context("kubectl has no name")?.to_owned();
    lines.extend([
        format!("try, with the first of them (kubectl is {kubectl}):"),
        "  kubectl -n shop port-forward service/front 8080:80    # the shop, at http://127.0.0.1:8080".into(),
        "  kubectl -n customers logs -f deployment/load          # its customers".into(),
        "  target/debug/ferro pods -n shop                       # where everything runs".into(),
        format!("  target/debug/rig --rig {NAME} cut turin rome            # and heal turin rome"),
        format!("end: target/debug/rig --rig {NAME} down"),
    ]);
    Ok(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use ::shop::report::{Line, Second};

    use super::*;

    #[test]
    fn who_takes_the_keys_is_told_something_else_than_who_watched() {
        let ending = |orders: u64, by_hand: bool| {
            let mut record = Record::default();
            record.begin("before the cut", 0.0);
            record.hear(&Line::Second(Second { second: 1, orders, ..Second::default() }));
            Ending { record, farewell: String::new(), by_hand }
        };
        for (orders, by_hand, is_good, verdict) in [
            (5, false, true, "all of it worked"),
            (0, false, false, "orders did not work"),
            (5, true, true, "you had the keys: orders were taken"),
            (0, true, false, "you had the keys: no order was taken"),
        ] {
            let ending = ending(orders, by_hand);
            assert_eq!(ending.is_good(), is_good, "{ending}");
            assert!(ending.to_string().contains(verdict), "{ending}");
        }
    }
}
