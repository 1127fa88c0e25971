//! What a peer's networks are called here: as at home where that is free, and otherwise by a replacement.

use ipnet::IpNet;

use super::{OwnNetworks, Refusal};
use crate::network::{Networks, Translation, replacement};

/// Where a peer's networks find their names.
pub(super) struct Names<'a> {
    pub(super) own: &'a OwnNetworks,
    /// What is in use, or rests after others had it.
    pub(super) taken: Vec<IpNet>,
    /// What the peer has, or had until just now.
    pub(super) former: Vec<Translation>,
    /// What the peer calls its networks.
    pub(super) offered: Vec<IpNet>,
}

impl Names<'_> {
    pub(super) fn name(&mut self, network: IpNet) -> Result<Translation, Refusal> {
        let taken: Networks = self.taken.iter().copied().collect();
        let is_same =
            |name: &&Translation| name.there() == network && taken.overlapping(&name.here()).is_none();
        let named = match self.former.iter().find(is_same) {
            Some(same) => *same,
            None => self.other(network, &taken)?,
        };
        self.taken.push(named.here());
        Ok(named)
    }

    /// A network keeps its name where that is free, and private: a peer must not draw traffic to itself that is meant
    /// for the rest of the world. What another network of the peer is or was called comes last: it may want to keep that.
    fn other(&self, network: IpNet, taken: &Networks) -> Result<Translation, Refusal> {
        let former = self.former.iter().map(Translation::here);
        let others: Vec<IpNet> = self.taken.iter().copied().chain(former).collect();
        let is_private = self.own.pools.iter().any(|pool| pool.contains(&network));
        if is_private && others.iter().copied().collect::<Networks>().overlapping(&network).is_none() {
            return Ok(Translation::identity(network));
        }
        let avoided: Networks = others.into_iter().chain(self.offered.iter().copied()).collect();
        let free = |taken| replacement(&network, &self.own.pools, taken);
        let stand_in = free(&avoided).or_else(|| free(taken)).ok_or(Refusal::NoRoom(network))?;
        Ok(Translation::new(stand_in, network)?)
    }
}
