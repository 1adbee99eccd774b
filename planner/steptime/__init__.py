"""Step times: a model's operators on a GPU under an engine, as terms and tables for the loop."""
