"""Deployments of Ray Serve: one kind of replica per capability, and the ingress.

replicas.py     the kinds of replicas, made from the protocols of their engines: load, warm, answer, health, close
client/         typed handles for researchers (`graph.connect`)
fork_server/    starts of engines without their imports
ingress/        the HTTP side. Never imports `models` or torch
haproxy         HAProxy with our changes
"""
