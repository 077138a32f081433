//! Draft tokens in one line.

use gristmill_engine::Drafting;
use gristmill_engine::Usage;

/// The draft tokens of a request, or of several; `None` if none were asked for.
pub fn drafts_line(usage: &Usage) -> Option<String> {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let name = match usage.drafting? {
        Drafting::Off(reason) => return Some(format!("no drafts because of {reason}")),
        drafting => drafting.name(),
    };
    let Some(acceptance) = usage.acceptance() else { return Some(format!("drafts by {name}: 0")) };
    let places: Vec<String> = usage.acceptance_by_place().map(percent).collect();
    let drafted = usage.drafted_tokens;
    let accepted = percent(acceptance);
    Some(format!("drafts by {name}: {drafted}, accepted {accepted}, by place {}", places.join(" ")))
}
