//! The parts of the suite, by name.

use super::{
    attention, compose, epilogue, experts, gated, matmul, norms, recurrent, refuse, route, rows, sample, scan,
};
use crate::suite::Suite;

/// A part of the suite.
pub type Part = fn(&Suite);

/// Passes the list of parts, `name = module::function`, to a macro: the only place that names them.
#[macro_export]
macro_rules! with_parts {
    ($callback:ident) => {
        $callback! {
            matmul = matmul::shapes,
            matmul_joined = matmul::joined,
            matmul_rows = matmul::rows,
            matmul_extremes = matmul::extremes,
            gate_up = gated::dense,
            moe_gate_up = gated::experts,
            moe_matmul = experts::matmul,
            moe_one_expert = experts::one_expert,
            moe_combine = experts::combine,
            group_by_expert = route::group,
            group_many = route::group_many,
            route = route::route,
            embed = rows::embed,
            rms_norm = norms::rms_norm,
            layer_norm = norms::layer_norm,
            qk_norm = norms::qk_norm,
            rope = rows::rope,
            copy_rows = rows::copy_rows,
            gather_columns = rows::gather_columns,
            add = rows::add,
            scale = rows::scale,
            soft_cap = rows::soft_cap,
            clamp = rows::clamp,
            copies = rows::copies,
            causal_conv = recurrent::causal_conv,
            delta_rule = recurrent::delta_rule,
            selective_scan = scan::selective_scan,
            gated_norm = recurrent::gated_norm,
            multiply = recurrent::multiply,
            argmax = sample::argmax,
            sample = sample::sample,
            sample_distribution = sample::distribution,
            attention = attention::attention,
            attention_long = attention::attention_long,
            kv_copy = attention::copy,
            add_norm = compose::add_norm,
            add_norm_act = compose::add_norm_act,
            add_norms = compose::add_norms,
            multiply_act = compose::multiply_act,
            norm_act = compose::norm_act,
            norm_matmul = compose::norm_matmul,
            epilogues = epilogue::epilogues,
            gate_up_act = gated::act,
            experts = compose::experts,
            route_and_group = compose::route_and_group,
            qkv_write = compose::qkv_write,
            latent_write = compose::latent_write,
            attend = compose::attend,
            refuse_matrices = refuse::matrices,
            refuse_experts = refuse::experts,
            refuse_norms = norms::refuse,
            refuse_rows = rows::refuse,
            refuse_recurrent = recurrent::refuse,
            refuse_scan = scan::refuse,
            refuse_attention = refuse::attention,
            refuse_sampling = sample::refuse,
            refuse_memory = refuse::memory,
            refuse_compositions = refuse::compositions,
        }
    };
}

macro_rules! parts {
    ($($name:ident = $module:ident::$function:ident,)*) => {
        /// Every part of the suite, by name.
        pub const ALL: &[(&str, Part)] = &[$((stringify!($name), $module::$function),)*];
    };
}
with_parts!(parts);

/// Whether runs that look at every access take a part: they leave out what runs one kernel very often.
pub fn is_checked(part: &str) -> bool {
    part != "sample_distribution"
}

/// A part by its name.
pub fn part(name: &str) -> Option<Part> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, part)| *part)
}
