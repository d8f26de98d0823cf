// SPDX-License-Identifier: GPL-2.0-only

//! Tests of the whole simulator, in one program that is built and linked once.

mod engine;
mod fluid;
mod scenarios;
mod studies;
