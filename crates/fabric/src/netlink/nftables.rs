//! Tables of nftables with chains and sets of networks: as much of it as keeping senders and guarding nodes takes.
//!
//! A table is always written as a whole, in one transaction, in place of the one before: packets meet the old one or
//! the new one, and no trace of what somebody else changed in it is left.

mod attributes;
mod element;
mod expression;

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use ipnet::IpNet;
use netlink_sys::protocols::NETLINK_NETFILTER;

use self::attributes::{Attributes, attribute, number, text};
pub use self::expression::Expression;
use super::is_gone;
use super::socket::{Conversation, Message, flags, message};

/// The part of netfilter that this is.
const NFTABLES: u16 = 10;
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

const NEW_TABLE: u16 = 0;
const GET_TABLE: u16 = 1;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const GET_CHAIN: u16 = 4;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
const NEW_SET: u16 = 9;
const GET_SET: u16 = 10;
const NEW_ELEMENTS: u16 = 12;
const GET_ELEMENTS: u16 = 13;

/// The first attribute of whatever is in a table is the table's name.
const TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LENGTH: u16 = 5;
const SET_ID: u16 = 10;
/// The set holds intervals.
const INTERVALS: u32 = 4;

/// How many networks go into one message, whose attributes are at most 64 KiB.
const PART: usize = 500;

/// Which packets a table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Version {
    /// The number of the family.
    fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    /// The type of addresses, and how many bytes they have.
    fn address(self) -> (u32, u32) {
        match self {
            Self::V4 => (7, 4),
            Self::V6 => (8, 16),
        }
    }
}

/// What is in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Its sets of networks, by name. No two networks of a set may overlap.
    pub sets: BTreeMap<String, BTreeSet<IpNet>>,
    /// Its chains, in the order in which they were made.
    pub chains: Vec<Chain>,
}

/// A chain that packets come by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// What it may do, such as `nat`.
    pub kind: String,
    /// Where it is.
    pub hook: u32,
    /// When it is asked there.
    pub priority: i32,
    /// Its rules.
    pub rules: Vec<Vec<Expression>>,
}

/// What is there under the name of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A table that is not one of those that are written here.
    Other,
    /// A table.
    Table(Table),
}

/// A connection to the part of the kernel that has nftables.
#[derive(Debug)]
pub struct Nftables(Conversation);

impl Nftables {
    /// Connects, in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Conversation::open(NETLINK_NETFILTER).map(Self)
    }

    /// Writes a table in place of the one of that name.
    pub fn write(&mut self, version: Version, name: &str, table: &Table) -> io::Result<()> {
        let mut batch = Batch::removing(version, name);
        batch.add(NEW_TABLE, flags::CREATE, Attributes::default().text(TABLE, name));
        for (id, (set, networks)) in (1..).zip(&table.sets) {
            batch.add_set(name, set, id, networks);
        }
        for chain in &table.chains {
            batch.add_chain(name, chain);
        }
        self.commit(batch)
    }

    /// Removes the table of that name, if there is one.
    pub fn remove(&mut self, version: Version, name: &str) -> io::Result<()> {
        self.commit(Batch::removing(version, name))
    }

    fn commit(&mut self, batch: Batch) -> io::Result<()> {
        let family = batch.version.number();
        // The subsystem stands where others have a number of their own.
        let edge = [0, 0, NFTABLES.to_be_bytes()[0], NFTABLES.to_be_bytes()[1]];
        let mut bytes = message(BATCH_BEGIN, 0, self.0.next(), &edge);
        let count = batch.messages.len();
        for (kind, with, body) in batch.messages {
            let body = [[family, 0, 0, 0].as_slice(), &body.into_bytes()].concat();
            bytes.extend(message(NFTABLES << 8 | kind, flags::ACK | with, self.0.next(), &body));
        }
        bytes.extend(message(BATCH_END, 0, self.0.next(), &edge));
        self.0.send(&bytes)?;
        let verdicts: Vec<_> = self.0.drain()?.iter().filter_map(Message::verdict).collect();
        let confirmed = verdicts.into_iter().collect::<io::Result<Vec<()>>>()?.len();
        if confirmed == count {
            Ok(())
        } else {
            Err(io::Error::other("the kernel did not confirm a transaction"))
        }
    }

    /// What is there under the name of a table.
    pub fn read(&mut self, version: Version, name: &str) -> io::Result<Found> {
        let of_table = || Attributes::default().text(TABLE, name);
        match self.ask(version, GET_TABLE, flags::ACK, of_table()) {
            Err(error) if is_gone(&error) => return Ok(Found::Nothing),
            answer => answer?,
        };
        let chains = self.list(version, GET_CHAIN, name, of_table())?;
        let mut sets = BTreeMap::new();
        for set in self.list(version, GET_SET, name, of_table())? {
            let Some(set) = attribute(&set, SET_NAME).and_then(text) else { return Ok(Found::Other) };
            let of_set = of_table().text(SET_NAME, set);
            let mut elements = Vec::new();
            for part in self.list(version, GET_ELEMENTS, name, of_set)? {
                elements.extend(element::elements(&part));
            }
            let Some(networks) = element::networks(version, &elements) else { return Ok(Found::Other) };
            sets.insert(set.to_owned(), networks);
        }
        let rules = self.list(version, GET_RULE, name, of_table())?;
        let chains = chains.iter().map(|chain| Chain::read(version, chain, &rules)).collect();
        Ok(match chains {
            Some(chains) => Found::Table(Table { sets, chains }),
            None => Found::Other,
        })
    }

    /// All objects of a sort that are in a table.
    fn list(
        &mut self,
        version: Version,
        kind: u16,
        name: &str,
        which: Attributes,
    ) -> io::Result<Vec<Vec<u8>>> {
        let answers = self.ask(version, kind, flags::DUMP, which)?;
        let is_in_table = |body: &[u8]| attribute(body, TABLE).and_then(text) == Some(name);
        let bodies = answers.into_iter().filter(|answer| answer.body.first() == Some(&version.number()));
        let bodies = bodies.map(|answer| answer.body.get(4..).unwrap_or_default().to_vec());
        Ok(bodies.filter(|body| is_in_table(body)).collect())
    }

    fn ask(&mut self, version: Version, kind: u16, with: u16, which: Attributes) -> io::Result<Vec<Message>> {
        let body = [[version.number(), 0, 0, 0].as_slice(), &which.into_bytes()].concat();
        self.0.ask(NFTABLES << 8 | kind, with, &body)
    }
}

/// Whether a message is about something in a table of this name.
pub(super) fn is_about(body: &[u8], table: &str) -> bool {
    let attributes = body.get(4..).unwrap_or_default();
    attribute(attributes, TABLE).and_then(text) == Some(table)
}

/// The messages of one transaction.
struct Batch {
    version: Version,
    messages: Vec<(u16, u16, Attributes)>,
}

impl Batch {
    /// A transaction that first removes a table: one that is not there cannot be removed, and so is made.
    fn removing(version: Version, name: &str) -> Self {
        let mut batch = Self { version, messages: Vec::new() };
        batch.add(NEW_TABLE, flags::CREATE, Attributes::default().text(TABLE, name));
        batch.add(DELETE_TABLE, 0, Attributes::default().text(TABLE, name));
        batch
    }

    fn add(&mut self, kind: u16, with: u16, body: Attributes) {
        self.messages.push((kind, with, body));
    }

    fn add_set(&mut self, table: &str, name: &str, id: u32, networks: &BTreeSet<IpNet>) {
        let (kind, length) = self.version.address();
        let named = || Attributes::default().text(TABLE, table).text(SET_NAME, name);
        let set = named().number(SET_FLAGS, INTERVALS).number(SET_KEY_TYPE, kind);
        self.add(NEW_SET, flags::CREATE, set.number(SET_KEY_LENGTH, length).number(SET_ID, id));
        let networks: Vec<_> = networks.iter().collect();
        for part in networks.chunks(PART) {
            self.add(NEW_ELEMENTS, flags::CREATE, element::write(named(), id, part));
        }
    }

    fn add_chain(&mut self, table: &str, chain: &Chain) {
        let named = || Attributes::default().text(TABLE, table);
        let hook = Attributes::default().number(HOOK_NUMBER, chain.hook);
        let hook = hook.number(HOOK_PRIORITY, chain.priority.cast_unsigned());
        let body =
            named().text(CHAIN_NAME, &chain.name).nest(CHAIN_HOOK, &hook).text(CHAIN_TYPE, &chain.kind);
        self.add(NEW_CHAIN, flags::CREATE, body);
        for rule in &chain.rules {
            let expressions = expression::write(self.version, rule);
            let body = named().text(RULE_CHAIN, &chain.name).nest(RULE_EXPRESSIONS, &expressions);
            self.add(NEW_RULE, flags::CREATE | flags::APPEND, body);
        }
    }
}

impl Chain {
    /// From the message about a chain, and those about all rules of its table.
    fn read(version: Version, body: &[u8], rules: &[Vec<u8>]) -> Option<Self> {
        let hook = attribute(body, CHAIN_HOOK)?;
        let name = attribute(body, CHAIN_NAME).and_then(text)?;
        let is_in_chain = |rule: &&Vec<u8>| attribute(rule, RULE_CHAIN).and_then(text) == Some(name);
        let rules = rules.iter().filter(is_in_chain);
        Some(Self {
            name: name.to_owned(),
            kind: attribute(body, CHAIN_TYPE).and_then(text)?.to_owned(),
            hook: attribute(hook, HOOK_NUMBER).and_then(number)?,
            priority: attribute(hook, HOOK_PRIORITY).and_then(number)?.cast_signed(),
            rules: rules.map(|rule| expression::read(version, attribute(rule, RULE_EXPRESSIONS))).collect(),
        })
    }
}
