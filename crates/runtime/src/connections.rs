//! Connections to one API server: it takes a hundred requests at once on each, and a watch is a request that does not end. So
//! watches are spread over as many as it takes, and whatever else is asked finds room on the first.
//!
//! - Guarantees: however many watches there are, every other request is sent at once or after others that end. As long as
//!   there are few, there is one connection.
//! - Assumptions: what is below opens one connection and keeps to it, as clients of HTTP/2 do, and is always ready.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, SizeHint};
use hyper::{Request, Response, Uri};
use kube::client::Body as Question;
use tower_service::Service;

/// So many watches are on one connection, which leaves room for what ends.
const WATCHES: usize = 60;

/// The connections to one API server. Clones are the same.
pub struct Connections<S>(Arc<All<S>>);

struct All<S> {
    open: Box<dyn Fn() -> S + Send + Sync>,
    first: Connection<S>,
    /// The others, and whoever looks for a place.
    others: Mutex<Vec<Connection<S>>>,
}

/// A connection, and what each watch on it has a copy of.
struct Connection<S> {
    service: S,
    place: Arc<Place>,
}

#[derive(Debug, Default)]
struct Place;

impl<S> Clone for Connections<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Clone> Connection<S> {
    fn new(service: S) -> Self {
        Self { service, place: Arc::default() }
    }

    fn watches(&self) -> usize {
        Arc::strong_count(&self.place).saturating_sub(1)
    }

    /// With a place for a watch.
    fn taken(&self) -> (S, Option<Arc<Place>>) {
        (self.service.clone(), Some(Arc::clone(&self.place)))
    }
}

impl<S: Clone> Connections<S> {
    /// Opens connections in this way.
    pub fn new(open: impl Fn() -> S + Send + Sync + 'static) -> Self {
        let first = Connection::new(open());
        Self(Arc::new(All { open: Box::new(open), first, others: Mutex::default() }))
    }

    /// The connection for a request, and its place there if that is for long.
    fn find(&self, is_watch: bool) -> (S, Option<Arc<Place>>) {
        let All { open, first, others } = &*self.0;
        if !is_watch {
            return (first.service.clone(), None);
        }
        let mut others = others.lock().unwrap_or_else(PoisonError::into_inner);
        // Those that nobody needs any more are closed.
        others.retain(|connection| connection.watches() > 0);
        let mut all = std::iter::once(first).chain(&*others);
        if let Some(connection) = all.find(|connection| connection.watches() < WATCHES) {
            return connection.taken();
        }
        let another = Connection::new(open());
        let taken = another.taken();
        others.push(another);
        taken
    }
}

impl<S, B> Service<Request<Question>> for Connections<S>
where
    S: Service<Request<Question>, Response = Response<B>> + Clone,
    S::Future: Send + 'static,
{
    type Response = Response<Placed<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Question>) -> Self::Future {
        let (mut service, place) = self.find(is_watch(request.uri()));
        let answer = service.call(request);
        Box::pin(async move { Ok(answer.await?.map(|body| Placed { body, _place: place })) })
    }
}

/// The body of an answer, which has its place until it has ended or nobody wants it any more.
#[derive(Debug)]
pub struct Placed<B> {
    body: B,
    _place: Option<Arc<Place>>,
}

impl<B: Body + Unpin> Body for Placed<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether a watch is asked for.
pub fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http_body_util::Empty;
    use hyper::body::Bytes;
    use tower::ServiceExt as _;

    use super::*;

    /// One that says its number.
    #[derive(Clone)]
    struct Numbered(usize);

    impl Service<Request<Question>> for Numbered {
        type Response = Response<Empty<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Result<Self::Response, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Request<Question>) -> Self::Future {
            let response = Response::builder().header("number", self.0).body(Empty::new());
            std::future::ready(Ok(response.unwrap()))
        }
    }

    fn connections() -> Connections<Numbered> {
        let count = AtomicUsize::new(0);
        Connections::new(move || Numbered(count.fetch_add(1, Ordering::Relaxed)))
    }

    type Answer = Response<Placed<Empty<Bytes>>>;

    /// Asks by a clone, as whoever uses a client does.
    async fn ask(connections: &Connections<Numbered>, uri: &'static str) -> Answer {
        let request = Request::builder().uri(uri).body(Question::empty()).unwrap();
        connections.clone().oneshot(request).await.unwrap()
    }

    fn number(answer: &Answer) -> usize {
        answer.headers()["number"].to_str().unwrap().parse().unwrap()
    }

    const WATCH: &str = "/api/v1/pods?&watch=true&timeoutSeconds=290";

    #[tokio::test]
    async fn watches_are_spread_and_all_else_goes_by_the_first() {
        let connections = connections();
        let mut open = Vec::new();
        for _ in 0..=2 * WATCHES {
            open.push(ask(&connections, WATCH).await);
            assert_eq!(number(&ask(&connections, "/api/v1/pods?&limit=100").await), 0);
        }
        let mut on = BTreeMap::<usize, usize>::new();
        for answer in &open {
            *on.entry(number(answer)).or_default() += 1;
        }
        assert_eq!(on, BTreeMap::from([(0, WATCHES), (1, WATCHES), (2, 1)]));
    }

    #[tokio::test]
    async fn a_watch_that_has_ended_leaves_its_place_and_a_connection_that_nobody_needs_goes() {
        let connections = connections();
        let mut open = Vec::new();
        for _ in 0..=WATCHES {
            open.push(ask(&connections, WATCH).await);
        }
        assert_eq!(open.pop().map(|last| number(&last)), Some(1));
        open.pop();
        assert_eq!(number(&ask(&connections, WATCH).await), 0, "there is a place again");
        assert_eq!(connections.0.others.lock().unwrap().len(), 0);
    }

    #[test]
    fn a_watch_is_known_by_its_query() {
        let asks = |uri: &'static str| is_watch(&Uri::from_static(uri));
        assert!(asks(WATCH));
        assert!(!asks("/api/v1/namespaces/ns/pods?&limit=100"));
        assert!(!asks("/api/v1/namespaces/watch=true/pods"));
    }
}
