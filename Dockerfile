# All commands, and the dashboard as what runs when none is given: docs/guides/use-the-dashboard.md#in-a-container
FROM python:3.12-slim-bookworm AS build

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY reports/accuracy.json reports/accuracy.json
COPY reports/template reports/template
COPY hardware_db hardware_db
COPY workloads workloads
COPY planner planner
RUN python -m venv /opt/planner \
 && /opt/planner/bin/pip install --no-cache-dir --disable-pip-version-check '.[ui,sql]'


FROM python:3.12-slim-bookworm

COPY --from=build /opt/planner /opt/planner
ENV PATH=/opt/planner/bin:$PATH \
    HOME=/home/planner \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    STREAMLIT_SERVER_HEADLESS=true
RUN useradd --create-home --home-dir /home/planner --uid 10001 planner \
 && mkdir /work /studies \
 && chown planner:planner /work /studies

USER 10001
WORKDIR /work
# The loop is compiled here and not in the first replay; any user of --user may read it, and add to it for another CPU.
RUN planner replay chat --limit 100 --model llama-3.1-8b --gpu h100-sxm > /dev/null \
 && chmod -R a+rwX /home/planner

EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://localhost:8501/_stcore/health', timeout=4)"]
ENTRYPOINT ["planner"]
CMD ["ui", "--address", "0.0.0.0"]
