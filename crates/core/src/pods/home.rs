//! What is to be written at home and over there for one pod that is bound to a virtual node.
