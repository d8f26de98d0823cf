// SPDX-License-Identifier: GPL-2.0-only

//! From measurements to tables and pictures.
//!
//! * [`stat`]: medians, percentiles and spreads of repeated measurements.
//! * [`table`]: tables in Markdown, with numbers aligned, that read well on a terminal too.
//! * [`chart`]: line and bar charts as SVG; the same data give the same bytes.

pub mod chart;
pub mod stat;
pub mod table;
