//! The chat template of a request, in place of the model's.

use crate::error::ApiError;
use crate::models::ServedModel;

/// The value of the field `chat_template`, which this server obeys only if it was started so.
pub(super) fn allowed(model: &ServedModel, template: Option<String>) -> Result<Option<String>, ApiError> {
    match template {
        Some(_) if !model.app().options.allow_chat_template => {
            let message = "this server does not obey chat_template; start it with --allow-chat-template, or leave the \
                           field out (chat_template_kwargs sets variables of the model's template)";
            Err(ApiError::param("chat_template", message).with_code("unsupported"))
        }
        template => Ok(template),
    }
}
