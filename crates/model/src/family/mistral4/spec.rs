//! `mistral4`: Mistral 4. As `deepseek2`; a softmax routes, and queries have a temperature.

use crate::error::Result;
use crate::family::deepseek2;
use crate::family::read::KeyReader;
use crate::spec::ModelSpec;

pub(crate) fn spec(file: &KeyReader) -> Result<ModelSpec> {
    deepseek2::spec::spec(file)
}
