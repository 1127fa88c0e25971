//! Which cluster a command talks to, and as whom: the flags and the files that kubectl has for it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::kube_errors;

/// How long to wait for a server that does not answer at all.
const CONNECT: Duration = Duration::from_secs(10);

/// Flags that name a cluster, for every command that talks to one.
#[derive(Clone, Default, clap::Args)]
#[command(next_help_heading = "Options that choose the cluster")]
pub(crate) struct KubeArgs {
    /// The kubeconfig file to use, instead of those in KUBECONFIG or of ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use, instead of the current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The cluster of the kubeconfig to use, instead of that of the context
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,

    /// The user of the kubeconfig to be, instead of that of the context
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

impl KubeArgs {
    /// For a second cluster: the one of another file, or of another context in the same files.
    pub(crate) fn elsewhere(&self, kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        Self { kubeconfig: kubeconfig.or_else(|| self.kubeconfig.clone()), context, ..Self::default() }
    }

    /// What the words of an unfinished command line say, in either form: `--context a` and `--context=a`.
    pub(crate) fn of_words(words: &[String]) -> Self {
        let value = |flag: &str| {
            words.iter().enumerate().rev().find_map(|(place, word)| match word.strip_prefix(flag)? {
                "" => words.get(place + 1).cloned(),
                rest => rest.strip_prefix('=').map(str::to_owned),
            })
        };
        Self {
            kubeconfig: value("--kubeconfig").map(PathBuf::from),
            context: value("--context"),
            cluster: value("--cluster"),
            user: value("--user"),
        }
    }

    /// A client for the cluster, which has answered once.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        let mut config = match self.kubeconfig()? {
            Some(kubeconfig) => self.config(kubeconfig).await?,
            None => Config::incluster().ok().context(
                "there is no kubeconfig: name one with --kubeconfig FILE or in KUBECONFIG, or put it at \
                 ~/.kube/config",
            )?,
        };
        config.connect_timeout = Some(CONNECT);
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config)
            .map_err(|error| anyhow!("cannot use the credentials: {}", kube_errors::root(&error)))?;
        client.apiserver_version().await.map_err(|error| kube_errors::first_contact(&error, &server))?;
        Ok(client)
    }

    /// The name of the context in use, if there is a kubeconfig.
    pub(crate) fn context(&self) -> anyhow::Result<Option<String>> {
        let current = || anyhow::Ok(self.kubeconfig()?.and_then(|kubeconfig| kubeconfig.current_context));
        self.context.clone().map_or_else(current, |named| Ok(Some(named)))
    }

    async fn config(&self, kubeconfig: Kubeconfig) -> anyhow::Result<Config> {
        let contexts: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
        let wanted = self.context.as_ref().or(kubeconfig.current_context.as_ref());
        match wanted {
            None => {
                bail!("the kubeconfig has no current context; choose one with --context: {}", list(&contexts))
            }
            Some(wanted) if !contexts.contains(wanted) => {
                bail!("the kubeconfig has no context {wanted}; it has: {}", list(&contexts));
            }
            Some(_) => {}
        }
        let options = KubeConfigOptions {
            context: self.context.clone(),
            cluster: self.cluster.clone(),
            user: self.user.clone(),
        };
        Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .map_err(|error| anyhow!("cannot use the kubeconfig: {}", kube_errors::root(&error)))
    }

    fn kubeconfig(&self) -> anyhow::Result<Option<Kubeconfig>> {
        match &self.kubeconfig {
            Some(path) => read(path).map(Some),
            None => merged(&places(std::env::var_os("KUBECONFIG").as_deref(), std::env::home_dir())),
        }
    }
}

/// Where kubectl looks: in all files of KUBECONFIG, or else in the one below the home folder.
fn places(variable: Option<&OsStr>, home: Option<PathBuf>) -> Vec<PathBuf> {
    let named: Vec<_> = variable
        .map(|list| std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect())
        .unwrap_or_default();
    if named.is_empty() { home.map(|home| home.join(".kube/config")).into_iter().collect() } else { named }
}

/// All of these files that exist as one, in which the first to say something wins.
fn merged(paths: &[PathBuf]) -> anyhow::Result<Option<Kubeconfig>> {
    let mut merged: Option<Kubeconfig> = None;
    for path in paths.iter().filter(|path| path.exists()) {
        let next = read(path)?;
        merged = Some(match merged {
            Some(merged) => merged.merge(next).with_context(|| format!("cannot use {}", path.display()))?,
            None => next,
        });
    }
    Ok(merged)
}

fn read(path: &Path) -> anyhow::Result<Kubeconfig> {
    let unusable =
        |error| anyhow!("cannot use the kubeconfig {}: {}", path.display(), kube_errors::root(&error));
    Kubeconfig::read_from(path).map_err(unusable)
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::{KubeArgs, merged, places};
    use std::ffi::OsStr;
    use std::fs;
    use std::path::PathBuf;

    fn file(name: &str, contexts: &[&str], current: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ferro-kubeconfig-{}-{name}", std::process::id()));
        let entry = |name| format!("{{name: {name}, context: {{cluster: c, user: u}}}}");
        let entries: Vec<_> = contexts.iter().map(entry).collect();
        fs::write(&path, format!("contexts: [{}]\ncurrent-context: {current}\n", entries.join(", ")))
            .unwrap();
        path
    }

    fn args(kubeconfig: PathBuf, context: Option<&str>) -> KubeArgs {
        let context = context.map(str::to_owned);
        KubeArgs { kubeconfig: Some(kubeconfig), context, cluster: None, user: None }
    }

    #[test]
    fn the_variable_may_name_several_files_and_else_it_is_the_home_folder() {
        let home = || Some(PathBuf::from("/home/jane"));
        let one = [PathBuf::from("/home/jane/.kube/config")];
        assert_eq!(places(Some(OsStr::new("a::b")), home()), [PathBuf::from("a"), PathBuf::from("b")]);
        assert_eq!(places(None, home()), one);
        assert_eq!(places(Some(OsStr::new("")), home()), one);
        assert!(places(None, None).is_empty());
    }

    #[test]
    fn of_several_files_the_first_to_say_something_wins_and_missing_ones_do_not_count() {
        let paths = ["none".into(), file("first", &["a"], "a"), file("second", &["b"], "b")];
        let both = merged(&paths).unwrap().unwrap();
        for path in &paths[1..] {
            fs::remove_file(path).unwrap();
        }
        assert_eq!(both.current_context.as_deref(), Some("a"));
        assert_eq!(both.contexts.iter().map(|context| context.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(merged(&["none".into()]).unwrap().is_none());
    }

    #[tokio::test]
    async fn a_context_that_is_not_there_is_named_with_those_that_are() {
        let path = file("contexts", &["home", "work"], "gone");
        let asked = args(path.clone(), Some("wrok")).client().await.err().unwrap().to_string();
        let current = args(path.clone(), None).client().await.err().unwrap().to_string();
        fs::remove_file(path).unwrap();
        assert_eq!(asked, "the kubeconfig has no context wrok; it has: home, work");
        assert_eq!(current, "the kubeconfig has no context gone; it has: home, work");
    }

    #[test]
    fn an_unfinished_command_line_names_its_cluster_in_either_form() {
        let words = ["ferro", "peer", "--kubeconfig=/tmp/k", "--context", "work", "--cluster-name", "x", ""];
        let args = KubeArgs::of_words(&words.map(str::to_owned));
        assert_eq!(args.kubeconfig, Some(PathBuf::from("/tmp/k")));
        assert_eq!(args.context.as_deref(), Some("work"));
        assert_eq!((args.cluster, args.user), (None, None));
    }

    #[test]
    fn a_named_context_is_the_context() {
        let path = file("named", &["home", "work"], "home");
        assert_eq!(args(path.clone(), None).context().unwrap().as_deref(), Some("home"));
        assert_eq!(args(path.clone(), Some("work")).context().unwrap().as_deref(), Some("work"));
        fs::remove_file(path).unwrap();
    }
}
