//! The handler of every interface that generates: a request in, a reply out.

use axum::response::Response;

use crate::access::Tenant;
use crate::error::ApiError;
use crate::fields;
use crate::generation::Running;
use crate::request::ApiRequest;
use crate::state::App;
use crate::stream::{self, Writer};

/// Runs a request and writes its reply.
pub(crate) async fn respond(
    app: &App,
    tenant: Tenant,
    request: ApiRequest,
    writer: impl Writer,
) -> Result<Response, ApiError> {
    let is_stream = request.stream;
    let mut running = Running::start(app, tenant, request).await?;
    if is_stream {
        running.begin().await?;
    }
    let header = fields::ignored_header(&running.ignored);
    let counts = running.counts.clone();
    let mut response = match is_stream {
        true => stream::events(running, writer),
        false => writer.whole(&running.collect().await?),
    };
    response.headers_mut().extend(header);
    response.extensions_mut().insert(counts);
    Ok(response)
}
