"""The paper's tables and figures on any model: what to measure, tables of it, and which of its claims hold."""
