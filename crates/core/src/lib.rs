//! Decisions as plain functions and state machines over values: no I/O, no clock, no client.
