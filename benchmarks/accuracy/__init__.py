"""How far predictions are from measurements, on all measured data that there is: `python -m benchmarks.accuracy`."""
