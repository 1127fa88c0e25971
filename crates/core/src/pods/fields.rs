//! What becomes of each field of a pod that travels: one table, which a test holds against the fields that there are.
