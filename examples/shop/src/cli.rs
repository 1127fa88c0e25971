//! The command line: one word for each service, and one for the customers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};

use crate::call::Caller;
use crate::load::{self, Load};
use crate::serve::{Stage, serve};
use crate::services::{Desk, cart, catalog, checkout, front, payment, recommendation};

/// A small shop, and its customers
#[derive(Debug, Parser)]
#[command(version)]
pub struct Arguments {
    /// Where a service is, as in catalog=HOST:PORT,HOST:PORT; otherwise at its name, at the port of the web
    #[arg(long = "to", value_name = "SERVICE=PLACES", value_parser = place, global = true)]
    places: Vec<(String, Vec<String>)>,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// The page that people see
    Front(Stage),
    /// What is sold
    Catalog {
        #[command(flatten)]
        stage: Stage,
        /// The list of products
        #[arg(long, default_value = "/etc/shop/products.json")]
        products: PathBuf,
    },
    /// Carts and orders, kept in a folder
    Cart {
        #[command(flatten)]
        stage: Stage,
        /// The folder
        #[arg(long, default_value = "/data")]
        data: PathBuf,
    },
    /// From a cart to an order
    Checkout(Stage),
    /// Charges cards, with the secret in the variable `PAYMENT_SECRET`
    Payment(Stage),
    /// What goes with a cart
    Recommendation(Stage),
    /// Customers that place orders and check each of them
    Load(Load),
}

impl Arguments {
    /// Does it until told to stop; false is said when an order went wrong.
    pub async fn run(self) -> Result<bool> {
        let caller = Caller::new(self.places.into_iter().collect::<BTreeMap<_, _>>());
        let (stage, router) = match self.role {
            Role::Load(load) => return load::run(load, caller).await,
            Role::Front(stage) => (stage, front::router(Desk::new("front", caller))),
            Role::Catalog { stage, products } => (stage, catalog::router(products)?),
            Role::Cart { stage, data } => (stage, cart::router(&data)?),
            Role::Checkout(stage) => (stage, checkout::router(Desk::new("checkout", caller))),
            Role::Payment(stage) => {
                let secret = std::env::var("PAYMENT_SECRET").context("PAYMENT_SECRET is not set")?;
                (stage, payment::router(&secret))
            }
            Role::Recommendation(stage) => {
                (stage, recommendation::router(Desk::new("recommendation", caller)))
            }
        };
        serve(stage, router).await?;
        Ok(true)
    }
}

fn place(text: &str) -> Result<(String, Vec<String>), String> {
    let (service, places) = text.split_once('=').ok_or("write SERVICE=HOST:PORT")?;
    Ok((service.to_owned(), places.split(',').map(str::to_owned).collect()))
}
