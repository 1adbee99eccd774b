"""The dashboard: `streamlit run app.py`, or `planner ui`."""

from planner.ui.app import main

main()
