//! What every long-running role needs: logs, health, metrics, leadership, shared watches, ordered shutdown.
//!
//! A room of its own because the roles live in different crates and must behave alike; it decides nothing.

pub mod api_server;
pub mod health;
pub mod leader;
pub mod logs;
pub mod shutdown;
pub mod watch;
