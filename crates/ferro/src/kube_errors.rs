//! What an API server's refusal means to the person at the keyboard, and what to do next.

use std::error::Error;

use kube::core::Status;

/// Tells what was tried, and what to do now that it failed.
pub(crate) trait Explain<T> {
    /// `doing` completes the sentence "cannot …".
    fn explain(self, doing: impl FnOnce() -> String) -> anyhow::Result<T>;
}

impl<T> Explain<T> for kube::Result<T> {
    fn explain(self, doing: impl FnOnce() -> String) -> anyhow::Result<T> {
        self.map_err(|error| anyhow::anyhow!("{}", sentence(&error, &doing())))
    }
}

/// What was tried, and what to do now that it failed.
pub(crate) fn sentence(error: &kube::Error, doing: &str) -> String {
    format!("cannot {doing}: {}", reason(error))
}

/// What was asked for, or nothing where there is no such object, or the cluster does not know its kind.
pub(crate) fn found<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        // By the code: for a kind that is not known, the server answers in plain text, without a reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        answer => answer.map(Some),
    }
}

/// What was asked for, or nothing for who may not see it.
pub(crate) fn allowed<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
        answer => answer.map(Some),
    }
}

/// Whether it may be better in a moment: the server restarts, or is overloaded.
pub(crate) fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code >= 500 || status.code == 429,
        _ => true,
    }
}

/// The error of the first call to a server, which is nearly always one of the connection.
pub(crate) fn first_contact(error: &kube::Error, server: &str) -> anyhow::Error {
    match error {
        kube::Error::Api(_) => anyhow::anyhow!("{server} does not let this user in: {}", reason(error)),
        _ => anyhow::anyhow!(
            "cannot reach the API server at {server}: {}; is the cluster running, and is this the right context?",
            root(error)
        ),
    }
}

/// An error of the controllers' code in the words of this program: what a server refused, and what to do about it.
pub(crate) fn in_words(error: anyhow::Error) -> anyhow::Error {
    let Some(refused) = error.chain().find_map(|cause| cause.downcast_ref::<kube::Error>()) else {
        return error;
    };
    let before = error.chain().take_while(|cause| !cause.is::<kube::Error>()).map(ToString::to_string);
    anyhow::anyhow!("{}", before.chain([reason(refused)]).collect::<Vec<_>>().join(": "))
}

fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => refusal(status),
        other => root(other),
    }
}

fn refusal(status: &Status) -> String {
    let message = status.message.trim();
    match status.code {
        401 => "the credentials are not valid; log in again, or choose another context with --context".into(),
        // The message names the user, the verb and the resource: exactly the right that is missing.
        403 => format!(
            "{message}; ask an administrator for that right, or choose another context with --context"
        ),
        _ if message.is_empty() => status.reason.clone(),
        _ => message.into(),
    }
}

/// What lies at the bottom; the layers above only say that something below them failed.
pub(crate) fn root(error: &dyn Error) -> String {
    let mut root = error;
    while let Some(source) = root.source() {
        root = source;
    }
    root.to_string()
}

#[cfg(test)]
mod tests {
    use super::{Explain, first_contact, found, in_words};
    use anyhow::Context as _;
    use kube::core::Status;

    fn refused(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "Reason").with_code(code).boxed())
    }

    fn explained(error: kube::Error) -> String {
        Err::<(), _>(error).explain(|| "list nodes".into()).unwrap_err().to_string()
    }

    #[test]
    fn a_missing_right_is_named_with_whom_to_ask() {
        let said =
            explained(refused(403, "nodes is forbidden: User \"jane\" cannot list resource \"nodes\""));
        assert_eq!(
            said,
            "cannot list nodes: nodes is forbidden: User \"jane\" cannot list resource \"nodes\"; ask an \
             administrator for that right, or choose another context with --context"
        );
    }

    #[test]
    fn credentials_that_do_not_count_are_called_so() {
        assert!(explained(refused(401, "Unauthorized")).contains("log in again"));
    }

    #[test]
    fn what_is_not_there_is_not_an_error_even_when_its_kind_is_not_known() {
        for answer in
            [Err(refused(404, "foreignclusters not found")), Err(refused(404, "404 page not found"))]
        {
            assert_eq!(found::<u8>(answer).unwrap(), None);
        }
        assert_eq!(found(Ok(1)).unwrap(), Some(1));
        assert!(found::<u8>(Err(refused(403, "no"))).is_err());
    }

    #[test]
    fn a_refusal_below_other_errors_is_told_in_the_same_words() {
        let below = Err::<(), _>(refused(403, "no secrets for jane")).context("cannot write x");
        assert_eq!(
            format!("{:#}", in_words(below.unwrap_err())),
            "cannot write x: no secrets for jane; ask an administrator for that right, or choose another context with \
             --context"
        );
        assert_eq!(format!("{:#}", in_words(anyhow::anyhow!("low").context("high"))), "high: low");
    }

    #[test]
    fn a_refusal_without_words_still_has_a_reason() {
        assert_eq!(explained(refused(500, "")), "cannot list nodes: Reason");
    }

    #[test]
    fn a_server_that_is_not_there_is_named_with_the_cause() {
        let cause = std::io::Error::other("connection refused");
        let said =
            first_contact(&kube::Error::Service(Box::new(cause)), "https://192.0.2.1:6443/").to_string();
        assert!(
            said.starts_with("cannot reach the API server at https://192.0.2.1:6443/: connection refused;"),
            "{said}"
        );
    }
}
