// SPDX-License-Identifier: GPL-2.0-only

//! Pages from templates and results.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use nrs_report::stat::Spread;
use nrs_report::table::{commas, Table};
use serde::Serialize;

use crate::Result;

/// Renders a template. Its filters:
///
/// - `fixed(PLACES)`: a number with that many decimals; undefined without a number.
/// - `spread(PLACES)`: the text of a [`Spread`].
/// - `over(NUMBER)`: the quotient; infinite if the number is 0, where `/` is an error.
/// - `commas`: an integer with thousands separators.
/// - `table`: a block whose first line is the head of a table, and each further line a row; cells
///   are separated by `|`, and `\|` is a bar in a cell.
/// - `joined`: a block as one line.
///
/// # Errors
///
/// The template is wrong, or does not fit the results.
pub fn render(template: &str, results: impl Serialize) -> Result<String> {
    let mut all = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .keep_trailing_newline(true)
        .build()?;
    all.set_syntax(syntax);
    all.set_undefined_behavior(UndefinedBehavior::Chainable);
    all.add_filter("fixed", |value: Option<f64>, places: usize| {
        value.map_or(Value::UNDEFINED, |value| format!("{value:.places$}").into())
    });
    all.add_filter("spread", |value: Serde<Spread>, places: usize| {
        value.text(places)
    });
    all.add_filter("over", |value: f64, other: f64| value / other);
    all.add_filter("commas", |value: f64| commas(value.round() as u32));
    all.add_filter("table", |block: &str| {
        let mut table = Table::new::<&str>(&[]);
        for (n, line) in block.replace("\\|", "\0").lines().enumerate() {
            let cells = line.split('|').map(|cell| cell.trim().replace('\0', "|"));
            let cells: Vec<String> = cells.collect();
            match n {
                0 => table = Table::new(&cells),
                _ => _ = table.row(&cells),
            }
        }
        table.markdown()
    });
    all.add_filter("joined", |block: &str| {
        block.lines().map(str::trim).collect::<Vec<_>>().join(" ") + "\n"
    });
    Ok(all.render_str(template, Serde(results))?)
}
