//! Which options an error of a library is about: the libraries do not name options.

use std::error::Error as StdError;

use gristmill_convert::ConvertError;
use gristmill_convert::quantize::QuantizeError;
use gristmill_engine::{EngineError, Error, Notice, kernels};
use gristmill_hub::Error as HubError;
use gristmill_lab::LabError;

/// The options, if there are any.
pub(crate) fn of(error: &(dyn StdError + 'static)) -> Option<&'static str> {
    if let Some(error) = error.downcast_ref() {
        return of_engine(error);
    }
    if let Some(error) = error.downcast_ref() {
        return of_model(error);
    }
    if let Some(error) = error.downcast_ref() {
        return of_kernels(error);
    }
    if let Some(error) = error.downcast_ref() {
        return of_conversion(error);
    }
    if let Some(error) = error.downcast_ref() {
        return of_quantisation(error);
    }
    if let Some(error) = error.downcast_ref() {
        return of_lab(error);
    }
    error.downcast_ref().and_then(of_hub)
}

/// The same for a notice.
pub(crate) fn of_notice(notice: &Notice) -> Option<&'static str> {
    match notice {
        Notice::BrokenTemplate(_) | Notice::TemplateWithoutTools(_) => Some("--chat-template FILE"),
        _ => None,
    }
}

fn of_engine(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::Model(error) => of_model(error),
        EngineError::BrokenTemplate(_) => Some("--chat-template FILE"),
        _ => None,
    }
}

fn of_model(error: &Error) -> Option<&'static str> {
    match error {
        Error::Kernel(error) => of_kernels(error),
        Error::ExpertPlacement { .. } => Some("--experts-on"),
        Error::MemoryLimit { .. } => Some("--gpu-memory"),
        Error::Memory { what: "experts in host memory", .. } => Some("--experts-on disk:N, --experts-on cpu:N"),
        Error::Memory { what: "the model", .. } => Some("--experts-on cpu"),
        _ => None,
    }
}

fn of_kernels(error: &kernels::Error) -> Option<&'static str> {
    match error {
        kernels::Error::OutOfDeviceMemory { .. } => Some("--gpu-memory"),
        kernels::Error::Level(_) => Some("gristmill --version prints the best level"),
        _ => None,
    }
}

fn of_conversion(error: &ConvertError) -> Option<&'static str> {
    match error {
        ConvertError::Quantize(error) => of_quantisation(error),
        ConvertError::Quantised(_) => Some("--quantize"),
        ConvertError::PreTokenizer { .. } => Some("--pre NAME"),
        ConvertError::PreUnused { .. } => Some("--pre"),
        ConvertError::Unrunnable(error) => of_model(error),
        _ => None,
    }
}

fn of_quantisation(error: &QuantizeError) -> Option<&'static str> {
    match error {
        QuantizeError::Exists(_) => Some("--force"),
        QuantizeError::NoMatch { small: false, .. } => Some("gristmill inspect --all lists them"),
        QuantizeError::Kernel(error) => of_kernels(error),
        _ => None,
    }
}

fn of_lab(error: &LabError) -> Option<&'static str> {
    match error {
        LabError::Model(error) => of_model(error),
        LabError::Engine(error) => of_engine(error),
        LabError::Kernel(error) => of_kernels(error),
        LabError::Quantize(error) => of_quantisation(error),
        LabError::SequenceTokens => Some("--depth, --prompt"),
        LabError::NoExperts | LabError::OpenTrace { .. } | LabError::TraceLine { .. } | LabError::EmptyTrace(_) => {
            Some("--routing")
        }
        LabError::ShortText { .. } => Some("--ctx"),
        LabError::SavedLogits { .. } => Some("--kl-base"),
        _ => None,
    }
}

fn of_hub(error: &HubError) -> Option<&'static str> {
    match error {
        HubError::Cpu(_) | HubError::Status { .. } | HubError::Redirect { .. } | HubError::Reply { .. } => {
            Some("--endpoint URL")
        }
        HubError::Connection { .. } => Some("--offline"),
        HubError::Fickle { .. } => Some("--connections 1"),
        HubError::Offline { .. } => Some("--offline, HF_HUB_OFFLINE"),
        _ => None,
    }
}
