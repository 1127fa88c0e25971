//! A small shop: six services that call each other over HTTP, and customers that check each of their orders.
//!
//! It is an application like any other and knows nothing of where it runs. What makes it fit to be spread over several
//! clusters is what makes any application fit to lose a replica: every request may be repeated ([`call`]), and the one
//! service with state decides in one place ([`ledger`]).

mod answer;
mod call;
pub mod cli;
mod goods;
mod journal;
mod ledger;
mod load;
mod orders;
mod payments;
pub mod report;
mod retry;
mod serve;
mod services;
mod suggestions;
