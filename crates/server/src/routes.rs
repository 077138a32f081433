//! Paths, and who serves them.

use axum::Router;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{Redirect, Response};
use axum::routing::{MethodRouter, delete, get, post};

use crate::endpoints::endpoints;
use crate::error::{ApiError, refuse};
use crate::models::OfferedModel;
use crate::options::Options;
use crate::state::App;
use crate::{access, anthropic, elsewhere, health, info, log, metrics, model, openai, openapi, page, unread, worker};

/// The paths of a server, to mount in an application of one's own.
///
/// Keys, hosts, origins and the sizes of bodies are checked here. The caller accepts connections, so
/// [`Options::connections`], [`Options::idle`] and the time limits to send a head or to read a reply apply only in a
/// [`Server`](crate::Server), and `/metrics` counts no connections. An application that keeps an `Arc` of an engine
/// can use it next to the server: both share the model and the prefix cache.
pub fn router(models: Vec<OfferedModel>, options: Options) -> Router {
    routes(App::new(models, options))
}

/// The prefix of the paths of OpenAI's and Anthropic's interfaces. Base addresses of OpenAI clients end with it, base
/// addresses of Anthropic clients do not. With the other's base address, a path lacks the prefix or has it twice.
const PREFIXES: [&str; 3] = ["/v1", "", "/v1/v1"];

/// A path and who serves it.
type Endpoint = (&'static str, MethodRouter<App>);

macro_rules! lists {
    ($($list:ident { $($method:ident $path:literal $($handler:ident)::+,)* })*) => {
        $(fn $list() -> Vec<Endpoint> {
            vec![$(($path, $method($($handler)::+))),*]
        })*
    };
}

endpoints!(lists);

pub(crate) fn routes(app: App) -> Router {
    let pages = match app.options.page {
        true => {
            let router = Router::new().route("/", get(page::index)).route("/page/{*name}", get(page::named));
            // The base address of programs, in a browser.
            page::BASES.into_iter().fold(router, |router, base| router.route(base, get(to_page)))
        }
        false => Router::new(),
    };
    let older = [(worker::OLDER[0], get(worker::server_info)), (worker::OLDER[1], get(worker::model_info))];
    let interfaces = interfaces();
    let prefixed = |prefix| interfaces.iter().map(move |(path, route)| (format!("{prefix}{path}"), route.clone()));
    let router =
        PREFIXES.into_iter().flat_map(prefixed).fold(pages, |router, (path, route)| router.route(&path, route));
    let router = older.into_iter().fold(router, |router, (path, route)| router.route(path, route));
    let router = others().into_iter().fold(router, |router, (path, route)| router.route(path, route));
    let router = router
        .route("/openapi.json", get(openapi::show))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(from_fn_with_state(app.clone(), access::check));
    let access = &app.options.access;
    // Outside of the check, so that pages can read refusals too.
    let router = if access.origins.is_empty() { router } else { router.layer(access::cors(access)) };
    // Outermost, so that they see refusals too.
    router.layer(from_fn_with_state(app.clone(), log::watch)).layer(from_fn(unread::announce)).with_state(app)
}

/// The paths of monitoring alone, which need no key and no name of the machine.
pub(crate) fn monitoring(app: App) -> Router {
    let router = Router::new().route("/metrics", get(metrics::endpoint::show));
    let router = router.route("/health", get(health::health)).route("/ready", get(health::ready));
    router.fallback(no_route).method_not_allowed_fallback(no_method).layer(from_fn(unread::announce)).with_state(app)
}

async fn to_page() -> Redirect {
    Redirect::temporary("/")
}

async fn no_route(uri: Uri, headers: HeaderMap) -> Response {
    let message = format!("there is nothing at {}; {}", uri.path(), elsewhere::advice(uri.path()));
    refuse(ApiError::new(StatusCode::NOT_FOUND, message), &uri, &headers)
}

async fn no_method(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let message = format!("{} does not take {method}; see /openapi.json", uri.path());
    refuse(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message), &uri, &headers)
}
