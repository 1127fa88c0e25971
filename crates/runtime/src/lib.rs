//! What every long-running role needs: logs, Events, health, metrics, leadership, shared watches, certificates,
//! ordered shutdown.
//!
//! A room of its own because the roles live in different crates and must behave alike; it decides nothing.

pub mod api_server;
pub mod certificates;
pub mod connections;
pub mod events;
pub mod finalizer;
pub mod health;
pub mod leader;
pub mod logs;
pub mod memory;
pub mod places;
pub mod queue;
pub mod shutdown;
pub mod tls;
pub mod watch;
