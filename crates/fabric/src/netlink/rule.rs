//! Rules that say which table is asked for packets that come from a link.

use std::io;

use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::Netlink;
use super::socket::flags;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether it is for IPv6.
    pub is_v6: bool,
    /// When it is asked; those with less are asked before.
    pub priority: u32,
    /// The name of the link, if it is about one.
    pub input: Option<String>,
    /// The table that it leads to.
    pub table: u32,
    /// By whom it was made.
    pub protocol: u8,
}

impl Netlink {
    /// All rules.
    pub fn rules(&mut self) -> io::Result<Vec<Rule>> {
        let mut all = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut message = RuleMessage::default();
            message.header.family = family;
            let answers = self.dump(&RouteNetlinkMessage::GetRule(message))?;
            all.extend(answers.iter().filter_map(Rule::of_message));
        }
        Ok(all)
    }

    /// Makes a rule.
    pub fn add_rule(&mut self, rule: &Rule) -> io::Result<()> {
        self.change(&RouteNetlinkMessage::NewRule(rule.message()), flags::CREATE | flags::EXCLUSIVE)
    }

    /// Removes a rule; only the one that is the same in everything.
    pub fn delete_rule(&mut self, rule: &Rule) -> io::Result<()> {
        self.change(&RouteNetlinkMessage::DelRule(rule.message()), 0)
    }
}

impl Rule {
    fn message(&self) -> RuleMessage {
        let mut message = RuleMessage::default();
        message.header.family = if self.is_v6 { AddressFamily::Inet6 } else { AddressFamily::Inet };
        message.header.action = RuleAction::ToTable;
        message.header.table = u8::try_from(self.table).unwrap_or_default();
        let attributes = &mut message.attributes;
        attributes.push(RuleAttribute::Priority(self.priority));
        attributes.push(RuleAttribute::Table(self.table));
        attributes.push(RuleAttribute::Protocol(self.protocol.into()));
        attributes.extend(self.input.clone().map(RuleAttribute::Iifname));
        message
    }

    pub(super) fn of_message(message: &RouteNetlinkMessage) -> Option<Self> {
        let (RouteNetlinkMessage::NewRule(message) | RouteNetlinkMessage::DelRule(message)) = message else {
            return None;
        };
        let is_v6 = message.header.family == AddressFamily::Inet6;
        let table = message.header.table.into();
        let mut rule = Self { is_v6, priority: 0, input: None, table, protocol: 0 };
        for attribute in &message.attributes {
            match attribute {
                RuleAttribute::Priority(priority) => rule.priority = *priority,
                RuleAttribute::Table(table) => rule.table = *table,
                RuleAttribute::Iifname(name) => rule.input = Some(name.clone()),
                RuleAttribute::Protocol(protocol) => rule.protocol = (*protocol).into(),
                _ => {}
            }
        }
        Some(rule)
    }
}
