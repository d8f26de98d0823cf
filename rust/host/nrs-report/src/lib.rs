// SPDX-License-Identifier: GPL-2.0-only

//! Tables and charts from measurements.
//!
//! - [`stat`]: medians, percentiles and spreads of repeated measurements.
//! - [`table`]: tables in Markdown, with aligned numbers, also readable on a terminal.
//! - [`chart`]: line and bar charts as SVG; equal data give equal bytes.

pub mod chart;
pub mod stat;
pub mod table;
