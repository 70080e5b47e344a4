// SPDX-License-Identifier: Apache-2.0
//! The API's description of itself. What an operation takes and answers is beside it, in `api.rs`.

use serde_json::Value;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{Modify, OpenApi, ToSchema};

use crate::api;

/// What every answer has that is an error.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described")]
pub struct Failure {
    error: Message,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "only described")]
struct Message {
    message: String,
}

/// What was read of each attachment.
#[derive(ToSchema)]
#[expect(dead_code, reason = "only described")]
pub struct Readings {
    /// As the command of the same name prints it with --json; of `policy`, the part of `status` that is about it.
    #[schema(value_type = Vec<Object>)]
    attachments: Vec<Value>,
    /// Why others could not be read.
    unreadable: Vec<String>,
}

#[derive(OpenApi)]
#[openapi(
    info(title = "wirewised serve", description = "What runs on the interfaces of this host, and changes to it."),
    paths(
        api::numbers,
        api::state,
        api::status,
        api::policy,
        api::stats,
        api::drift,
        api::card,
        api::explain,
        api::lists,
        api::flows,
        api::talkers,
        api::events,
        api::doctor,
        api::openapi,
        api::reload,
        api::mode,
        api::rollback,
        api::swap,
        api::shadow,
        api::allow,
        api::deny,
        api::lift
    ),
    components(schemas(Failure)),
    security(("token" = [])),
    modifiers(&Common)
)]
pub struct Described;

/// What holds for all operations.
struct Common;

impl Modify for Common {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_with(Default::default);
        components.add_security_scheme("token", SecurityScheme::Http(token));
        for item in document.paths.paths.values_mut() {
            let changes = item.post.is_some();
            for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
                let mut add = |status: &str, response: Response| {
                    operation.responses.responses.insert(status.to_string(), RefOr::T(response));
                };
                add("401", Response::new("No token, or none that is known. The answer is empty."));
                add("429", failure("The address asks too often, or too often without a token."));
                if changes {
                    add("403", failure("The token has another role than `operate`."));
                    add("409", failure("What was asked for cannot be had. Nothing was changed."));
                    add("503", failure("The service is ending."));
                }
                if operation.parameters.as_ref().is_some_and(|parameters| !parameters.is_empty()) {
                    add("400", failure("A parameter breaks a rule."));
                }
            }
        }
    }
}

fn failure(why: &str) -> Response {
    let content = Content::new(Some(Ref::from_schema_name("Failure")));
    ResponseBuilder::new().description(why).content("application/json", content).build()
}
