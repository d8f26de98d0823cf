// SPDX-License-Identifier: GPL-2.0-only

//! Declaration of parameters: one row declares one parameter.
//!
//! ```text
//! parameters! {
//!     /// Parameters of the policy.
//!     pub struct Tunables of |values| values.policies.example, "example.md", "EAGAIN, ENOMEM" {
//!         /// Requests of one client dispatched in a row.
//!         "nrs_example_quantum" quantum: [heads "quantum" number Quantum,
//!             "requests, ", 1..=65_535 = 8],
//!         /// Requests to sort.
//!         "nrs_example_sorted" sorted: [choice Sorted,
//!             #[default] Reads = "reads", Writes = "writes"],
//!         /// Number of remembered requests.
//!         "nrs_example_window" window: [given Window],
//!     }
//!     also { classes_max: ClassesMax }
//!     texts {
//!         /// Statistics of the policy.
//!         "nrs_example_stats" Read "YAML", "", "ENOMEM", None;
//!     }
//! }
//! ```
//!
//! - A *row* generates a field of the struct, its type with limits and default, and a
//!   [`Parameter`](super::Parameter). The parameter defines the file, its text, its check and its
//!   line in the reference. The comment is the help text.
//! - `heads`: each head has a value, named by the literal in the text. `given`: the type is
//!   declared elsewhere.
//! - `also`: fields that are not parameters.
//! - `texts`: parameters that the service formats (`Read`), executes (`Write`), or both (`Both`):
//!   name and access, content or syntax, initial value, errors beside `EINVAL`, check.
//! - A row may end with `page "…"`, `errors "…"`, `default "…"`, in this order, to override the
//!   values of the table.

/// Declares the parameters of one policy or of a service: the struct, and `PARAMETERS` with a
/// [`Parameter`](super::Parameter) per row.
macro_rules! parameters {
    (
        $(#[$doc:meta])*
        pub struct $Group:ident of |$values:ident| $at:expr, $page:literal, $errors:literal {
            $($rows:tt)*
        }
        also { $($also:tt)* }
        texts { $($texts:tt)* }
    ) => {
        $crate::sched::parameters::schema::fields! {
            [$(#[$doc])*] $Group { $($rows)* } { $($also)* }
        }

        /// All parameters of the table.
        pub const PARAMETERS: &[$crate::sched::parameters::Parameter] =
            $crate::sched::parameters::schema::rows! {
                |$values| $at, $page, $errors { $($rows)* } { $($texts)* }
            };
    };
}

/// Declares the struct of the rows and the types of its fields.
macro_rules! fields {
    (
        [$(#[$doc:meta])*] $Group:ident {
            $($(#[doc = $help:literal])+ $name:literal $field:ident: $how:tt
                $(page $own_page:literal)? $(errors $own_errors:literal)?
                $(default $default:literal)?,)*
        } { $($(#[doc = $also_help:literal])+ $also:ident: $Also:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $Group {
            $($(#[doc = $help])+ pub $field: $crate::sched::parameters::schema::kind!(type $how),)*
            $($(#[doc = $also_help])+ pub $also: $Also,)*
        }

        $($crate::sched::parameters::schema::kind! { new [$(#[doc = $help])+] $name $how })*
    };
}

/// Expands to the type of a row's field (`type`), or to the declaration of this type (`new`).
macro_rules! kind {
    (type [heads $form:literal $kind:ident $Type:ident $($rest:tt)*]) => {
        $crate::sched::policy::params::heads::PerHead<$Type>
    };
    (type [$kind:ident $Type:ident $($rest:tt)*]) => { $Type };
    (new $help:tt $name:literal [heads $form:literal $($rest:tt)*]) => {
        $crate::sched::parameters::schema::kind! { new $help $name [$($rest)*] }
    };
    (new $help:tt $name:literal [given $Type:ident]) => {};
    (new [$($help:tt)*] $name:literal [$kind:ident $Type:ident, $($rest:tt)*]) => {
        $crate::sched::policy::params::$kind! { $($help)* $Type, $name: $($rest)* }
    };
}

/// Expands to the parameters of rows and texts.
macro_rules! rows {
    (
        |$values:ident| $at:expr, $page:literal, $errors:literal {
            $($(#[doc = $help:literal])+ $name:literal $field:ident: $how:tt
                $(page $own_page:literal)? $(errors $own_errors:literal)?
                $(default $default:literal)?,)*
        } {
            $(
                $(#[doc = $text_help:literal])+
                $text:literal $access:ident $takes:literal, $start:literal, $fails:literal,
                    $check:expr;
            )*
        }
    ) => {
        &[
            $($crate::sched::parameters::Parameter {
                name: $crate::sched::parameters::c_name(concat!($name, "\0")),
                access: $crate::sched::parameters::AccessMode::Both,
                default: concat!("" $(, $default)?),
                errors: $crate::sched::parameters::either(concat!("" $(, $own_errors)?), $errors),
                help: concat!($($help),+),
                page: $crate::sched::parameters::either(concat!("" $(, $own_page)?), $page),
                ..$crate::sched::parameters::schema::row!(|$values| $at, $field, $how)
            },)*
            $($crate::sched::parameters::Parameter {
                name: $crate::sched::parameters::c_name(concat!($text, "\0")),
                access: $crate::sched::parameters::AccessMode::$access,
                takes: $takes,
                heads: false,
                default: $start,
                errors: $fails,
                help: concat!($($text_help),+),
                page: $page,
                check: $check,
                value: None,
            },)*
        ]
    };
}

/// Expands to the part of a parameter that follows from the type of its row.
macro_rules! row {
    (
        |$values:ident| $at:expr, $field:ident,
        [heads $form:literal $kind:ident $Type:ident $($rest:tt)*]
    ) => {
        $crate::sched::parameters::Parameter {
            takes: <$Type as $crate::sched::policy::params::ParameterValue>::TAKES,
            heads: true,
            check: Some(|text| {
                let heads = $crate::sched::policy::params::heads::PerHead::<$Type>::default();
                heads.with($form, text).map(|_| ())
            }),
            value: Some($crate::sched::parameters::ValueAccessors {
                show: |$values, out| $at.$field.write($form, out),
                set: |$values, text| {
                    $at.$field = $at.$field.with($form, text)?;
                    Ok(())
                },
            }),
            ..$crate::sched::parameters::Parameter::NONE
        }
    };
    (|$values:ident| $at:expr, $field:ident, [$kind:ident $Type:ident $($rest:tt)*]) => {
        $crate::sched::parameters::Parameter {
            takes: <$Type as $crate::sched::policy::params::ParameterValue>::TAKES,
            check: Some(|text| {
                <$Type as $crate::sched::policy::params::ParameterValue>::parse(text.trim())
                    .map(|_| ())
            }),
            value: Some($crate::sched::parameters::ValueAccessors {
                show: |$values, out| writeln!(out, "{}", $at.$field),
                set: |$values, text| {
                    $at.$field = <$Type as $crate::sched::policy::params::ParameterValue>::parse(
                        text.trim(),
                    )?;
                    Ok(())
                },
            }),
            ..$crate::sched::parameters::Parameter::NONE
        }
    };
}

pub(crate) use {fields, kind, parameters, row, rows};
