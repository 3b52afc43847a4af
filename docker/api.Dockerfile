# The example service (docs/examples/orders) with FastAPI. Not built by the project's own tests; see README.md here.

FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /app/venv
COPY pyproject.toml README.md LICENSE ./
COPY aioflow ./aioflow
RUN /app/venv/bin/pip install --no-cache-dir ".[uvloop]" fastapi uvicorn

FROM python:3.13-slim
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin aioflow
COPY --from=build /app/venv /app/venv
COPY docs/examples/orders /app/code
ENV PATH=/app/venv/bin:$PATH PYTHONUNBUFFERED=1
WORKDIR /app/code
USER 10001
STOPSIGNAL SIGTERM
EXPOSE 8000
ENTRYPOINT ["uvicorn", "app:app", "--host", "0.0.0.0", "--port", "8000"]
