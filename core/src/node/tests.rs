//! Scripted traces of the node.
