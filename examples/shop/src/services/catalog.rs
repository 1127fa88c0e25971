//! The catalog: the list of products from a file, read again when it changes. See [`crate::goods`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::State;
use axum::routing::get;

use super::Reply;
use crate::answer::{Answer, Instance, Refused};
use crate::goods::{Catalog, Product};

/// The file, and what was last read of it.
struct Shelf {
    me: Instance,
    file: PathBuf,
    known: Mutex<(SystemTime, Catalog)>,
}

/// The service; a file that cannot be sold from is an error now, and later leaves what was known.
pub(crate) fn router(file: PathBuf) -> Result<Router> {
    let known = Mutex::new(read(&file)?);
    let shelf = Shelf { me: Instance::this("catalog"), file, known };
    Ok(Router::new().route("/products", get(products)).with_state(Arc::new(shelf)))
}

async fn products(State(shelf): State<Arc<Shelf>>) -> Reply<Vec<Product>> {
    let mut known = shelf.known.lock().unwrap_or_else(PoisonError::into_inner);
    let changed = changed(&shelf.file).map_err(|error| Refused::unavailable(&error))?;
    if changed != known.0 {
        match read(&shelf.file) {
            Ok(read) => *known = read,
            Err(error) => eprintln!("catalog: {error:#}; the former list stays"),
        }
    }
    Ok(Answer { by: vec![shelf.me.clone()], said: known.1.products().cloned().collect() })
}

fn read(file: &Path) -> Result<(SystemTime, Catalog)> {
    let when = changed(file).with_context(|| format!("cannot read {}", file.display()))?;
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok((when, Catalog::parse(&text)?))
}

fn changed(file: &Path) -> std::io::Result<SystemTime> {
    file.metadata()?.modified()
}
