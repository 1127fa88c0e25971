//! What the configuration says of each kind: what is needed over there goes, or only what asks for it, or nothing.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::stage::{Stage, on_stage};

/// The setting of a kind, the kind, and the name of an object that is needed over there.
const KINDS: [(&str, &str, &str); 3] = [
    ("configMaps", "ConfigMap", "settings"),
    ("secrets", "Secret", "keys"),
    ("ingresses", "Ingress", "front"),
];
/// A mode, whether what is needed goes, and whether what asks for it goes.
const MODES: [(&str, bool, bool); 3] =
    [("OptIn", false, true), ("Never", false, false), ("Auto", true, true)];
/// The name of what asks for it; no pod refers to it.
const ASKS: &str = "asks";

fn content(kind: &str) -> Value {
    match kind {
        "ConfigMap" => json!({"data": {"a": "1"}}),
        "Secret" => json!({"stringData": {"a": "1"}}),
        _ => json!({"spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}}),
    }
}

#[test]
fn the_configuration_says_of_each_kind_by_itself_what_goes() -> Result<()> {
    on_stage(async |stage| {
        for (_, kind, needed) in KINDS {
            let mut asks = content(kind);
            asks["metadata"] = json!({"annotations": {"liqo.io/reflect": "true"}});
            stage.make(kind, needed, content(kind)).await?;
            stage.make(kind, ASKS, asks).await?;
        }
        for (_, kind, needed) in KINDS {
            stage.goes(kind, needed, true).await?;
            stage.goes(kind, ASKS, true).await?;
        }
        for (setting, kind, needed) in KINDS {
            for (mode, needed_goes, asked_goes) in MODES {
                stage.configure(&json!({setting: mode})).await?;
                stage.goes(kind, needed, needed_goes).await?;
                stage.goes(kind, ASKS, asked_goes).await?;
                others_are_there(stage, kind).await?;
            }
        }
        for (_, kind, needed) in KINDS {
            stage.unmake(kind, &[needed, ASKS]).await?;
        }
        Ok(())
    })
}

/// What is said of one kind is not said of others.
async fn others_are_there(stage: &Stage, kind: &str) -> Result<()> {
    for (_, other, needed) in KINDS.into_iter().filter(|(_, other, _)| *other != kind) {
        for name in [needed, ASKS] {
            let copy = stage.there(other).get_opt(name).await?;
            ensure!(copy.is_some(), "{other} {name} is gone because of {kind}");
        }
    }
    Ok(())
}
